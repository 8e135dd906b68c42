"""A learner without a model: the production machine and outbox, stepping by the clock.

It joins, copies, offers, adopts and speaks as any learner does, one word at a time, and says a word
again until the tape has it. Only tensors are missing: a delta is made once and stored under each
name, and a merged fragment counts as fetched when it is heard of.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

from decodiloco.fragments.schedule import rounds_ahead
from decodiloco.learner import machine
from decodiloco.learner.happenings import (
    Adopted,
    CheckpointTaken,
    Copied,
    FetchBegun,
    Fetched,
    Happening,
    Loaded,
    OfferBegun,
    OfferStored,
    Spoken,
    Stepped,
)
from decodiloco.learner.network import Changes
from decodiloco.learner.outbox import join_word, next_word
from decodiloco.learner.owed import owed_at_boundary, owed_beside
from decodiloco.learner.state import (
    Adopt,
    CopyFragments,
    Fetch,
    Leave,
    Offer,
    State,
    StoreCheckpoint,
)
from decodiloco.learner.telling import told
from decodiloco.opening import Opening
from decodiloco.places import Places
from decodiloco.store.keys import delta_key
from decodiloco.times import RESEND_SECONDS
from streams.envelope import Envelope
from streams.errors import Trouble
from streams.events import DeltaOffered, RoundOpened, Word
from streams.parts import Moments
from streams.pulse import Beat
from tests.bench.load.deltas import Deltas

TOKENS = 100
STEP_BEGUN = 0.2  # of a step: how late a learner may be before it skips one


class Player:
    """One life of one learner. `waits`: seconds from a word said to its fact heard."""

    def __init__(
        self, name: str, opening: Opening, places: Places, deltas: Deltas, step_seconds: float
    ) -> None:
        self.state: State = machine.begin(opening, name)
        self.waits: list[float] = []
        self._places = places
        self._inbox = places.inboxes["home"]
        self._deltas = deltas
        self._step_seconds = step_seconds
        self._clock = asyncio.get_running_loop().time
        self._round_heard_at = self._clock()
        self._said_at = 0.0
        self._changes = Changes()

    def has_joined(self) -> bool:
        """Whether the tape has this life's first word."""
        return self.state.incarnation > 0

    def hear(self, envelope: Envelope) -> None:
        """A fact has arrived that is for this learner."""
        before = self.state.in_flight
        self.state = machine.fold(self.state, envelope)
        if isinstance(envelope.event, RoundOpened):
            self._round_heard_at = self._clock()
        if isinstance(before, DeltaOffered) and self.state.in_flight is None:
            self.waits.append(self._clock() - self._said_at)
        if self.has_joined():
            self._beside()
        self._changes.ring()

    async def play(self, first_seconds: float) -> None:
        """Joins, then trains for ever, its first step that much later."""
        await self._join()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._speak())
            group.create_task(self._beat())
            group.create_task(self._train(first_seconds))

    async def _join(self) -> None:
        versions = tuple(fragment.newest for fragment in self.state.fragments)
        self._tell(Loaded(versions, secrets.token_bytes(16)))
        nothing = Moments(source="zero", age_steps=0)
        while not self.has_joined():
            await self._say(join_word(self.state, "home", "load", nothing))
            await self._changes.wait(self.has_joined, RESEND_SECONDS)

    async def _beat(self) -> None:
        while True:
            state = self.state
            values: dict[str, int | float | str] = {
                "incarnation": state.incarnation,
                "learner_step": state.learner_step,
                "tokens_trained": state.tokens_trained,
                "step_seconds": self._step_seconds,
                "loss": state.loss,
            }
            await self._places.pulse.beat(Beat("learner", state.learner, values))
            await asyncio.sleep(state.opening.run.times.heartbeat_seconds)

    async def _train(self, first_seconds: float) -> None:
        """Steps at a fixed pace, whatever the run does; a learner that is late makes up for it."""
        due = self._clock() + first_seconds
        while True:
            await asyncio.sleep(max(0.0, due - self._clock()))
            self._boundary()
            due = max(due + self._step_seconds, self._clock() + STEP_BEGUN * self._step_seconds)

    def _boundary(self) -> None:
        self._tell(Stepped(TOKENS, 1.0, b"", self._step_seconds))
        for ask in owed_at_boundary(self.state, self._ahead()):
            match ask:
                case CopyFragments():
                    self._tell(Copied(ask.fragments))
                case Adopt():
                    self._tell(Adopted(ask.versions, ask.refresh))
                case StoreCheckpoint():
                    self._tell(CheckpointTaken(ask.learner_step))  # and never said
                case Leave():
                    raise AssertionError("a run under load has no end")
        self._beside()

    def _ahead(self) -> range:
        state, since_seconds = self.state, self._clock() - self._round_heard_at
        pace_seconds = state.pace_seconds or self._step_seconds
        fragments = len(state.fragments)
        return rounds_ahead(state.round, pace_seconds, since_seconds, self._step_seconds, fragments)

    def _beside(self) -> None:
        """Stores the deltas of rounds that are open, and takes what was merged."""
        for ask in owed_beside(self.state):
            if isinstance(ask, Offer):
                self._offer(ask)
            else:
                self._fetch(ask)
        self._changes.ring()

    def _offer(self, ask: Offer) -> None:
        copy, state = ask.copy, self.state
        self._tell(OfferBegun(ask.round, copy))
        delta = self._deltas.of(state.learner, copy.fragment)
        manifest = delta.manifest
        key = delta_key(
            state.opening.run.name,
            state.learner,
            state.incarnation,
            copy.fragment,
            copy.learner_step,
            manifest,
        )
        self._places.store.put(key, delta.parts)
        self._tell(OfferStored(ask.round, copy, manifest, 0.001))

    def _fetch(self, ask: Fetch) -> None:
        self._tell(FetchBegun(ask.fragment, ask.version))
        self._tell(Fetched(ask.fragment, ask.version, 0.001))

    async def _speak(self) -> None:
        while True:
            word = next_word(self.state)
            if word is None:
                await self._changes.wait(lambda: next_word(self.state) is not None)
                continue
            self._tell(Spoken(word))
            self._said_at = self._clock()
            while self.state.in_flight == word:
                await self._say(word)
                await self._changes.wait(lambda: self.state.in_flight is None, RESEND_SECONDS)

    async def _say(self, word: Word) -> None:
        """No end where a server does not answer in time: the word is said again."""
        with suppress(Trouble):
            await self._inbox.say(word)

    def _tell(self, happening: Happening) -> None:
        self.state = told(self.state, happening)
