"""The rule of rounds on the production machines: syncer's and learners', one heap of moments.

One second is one step of a nominal learner. No tensor moves: uploads, downloads, merges and the
tape only take their time. Each token is one inner step, so token fates count work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from decodiloco.fragments.schedule import rounds_ahead
from decodiloco.learner import machine, outbox, owed, telling
from decodiloco.learner import state as asks
from decodiloco.learner.happenings import (
    Adopted,
    Copied,
    FetchBegun,
    Fetched,
    Loaded,
    OfferBegun,
    OfferStored,
    Spoken,
    Stepped,
)
from decodiloco.merge.order import StoredMerge
from decodiloco.syncer import owed as syncer_owed
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.drafting import Waited, from_letter, from_merge, from_timed
from decodiloco.syncer.machine import fold
from streams.codec import encode_event
from streams.envelope import Envelope, Source
from streams.events import CheckpointStored, Word, speaker_of
from streams.inbox import Letter
from streams.parts import Moments
from tests.builders import manifest
from tests.desk import Desk, delta_manifest

TAPE_SECONDS, MERGE_SECONDS, JITTER = 0.05, 0.1, 0.05


@dataclass(frozen=True)
class Case:
    """A cluster: seconds a step of each learner, seconds of an upload and of a download."""

    steps: tuple[float, ...]
    transfer_seconds: float = 0.2
    fragments: int = 24
    inner_steps: int = 24
    quorum: int = 1
    overlap: int = 2


class Syncer:
    """The syncer's machine with a clock: carries out what it owes at once."""

    def __init__(self, world: World, case: Case) -> None:
        window = {"overlap": case.overlap, "upload_seconds": case.transfer_seconds}
        self.desk = Desk(
            case.fragments,
            inner_steps=case.inner_steps,
            quorum=case.quorum,
            learners_min=len(case.steps),
            window=window,
            times={"lost_seconds": 1e6, "orphan_seconds_max": 1e7},
            training={"checkpoint_steps": 10**6},
        )
        self.world = world
        self.folded_at: dict[int, float] = {}
        self.merging: set[str] = set()
        self.sequence = 0
        self.wakes: set[float] = set()

    def receive(self, word: Word) -> None:
        self.sequence += 1
        letter = Letter(
            Source("home", "life", self.sequence), speaker_of(word), word.kind, encode_event(word)
        )
        self.write(from_letter(letter, lambda _, verdict: refuse(verdict)))

    def write(self, draft: Draft) -> None:
        batch = compose(self.desk.state, [draft], Pen("syncer-1", 1), 0.0)
        for envelope in batch:
            self.desk.state = fold(self.desk.state, envelope)
            self.folded_at[envelope.position] = self.world.now
            for learner in self.world.learners:
                self.world.later(TAPE_SECONDS, lambda le=learner, e=envelope: le.hear(e))
        if batch:
            self.look()

    def look(self) -> None:
        """Carries out what is due; comes back when the next wait ends."""
        for ask in syncer_owed.owed(self.desk.state):
            if isinstance(ask, syncer_owed.MergeFragment):
                if ask.key not in self.merging:
                    self.merging.add(ask.key)
                    self.world.later(MERGE_SECONDS, lambda a=ask: self.write(self.merged(a)))
            elif isinstance(ask, (syncer_owed.OpenRound, syncer_owed.CloseWindow)):
                since = self.folded_at.get(ask.since, 0.0)
                left = since + ask.after_seconds - self.world.now
                if left > 1e-9:
                    self.wake_at(since + ask.after_seconds)
                    continue
                quorum_at = getattr(ask, "quorum_at", 0)
                quorum = self.folded_at.get(quorum_at, since) - since
                waited = Waited(quorum, self.world.now - since)
                self.write(from_timed(ask, waited, "syncer-1"))
                return

    def wake_at(self, moment: float) -> None:
        if moment not in self.wakes:
            self.wakes.add(moment)
            self.world.later(moment - self.world.now, self.look)

    def merged(self, ask: syncer_owed.MergeFragment) -> Draft:
        blob = manifest(f"round {ask.round}")
        offers = self.desk.state.rounds[ask.round].offers
        return from_merge(ask, StoredMerge(offers, (), blob, blob, blob, 0.0, ()), MERGE_SECONDS)


class Learner:
    """A learner's machine with a clock: trains, copies, uploads, fetches, adopts, speaks."""

    def __init__(self, world: World, name: str, step_seconds: float, case: Case) -> None:
        self.world, self.step_seconds, self.case = world, step_seconds, case
        self.state = machine.begin(world.syncer.desk.opening, name)
        self.opened_at = 0.0
        loaded = Loaded((0,) * case.fragments, name.encode().ljust(16, b"."))
        self.tell(loaded)
        moments = Moments(source="zero", age_steps=0)
        world.later(0.0, lambda: world.syncer.receive(
            outbox.join_word(self.state, "home", "test", moments)))  # fmt: skip

    def tell(self, happening: object) -> None:
        self.state = telling.told(self.state, happening)

    def hear(self, envelope: Envelope) -> None:
        joined = self.state.incarnation
        if envelope.event.kind == "round_opened":
            self.opened_at = self.world.now
        self.state = machine.fold(self.state, envelope)
        if self.state.incarnation and not joined:
            self.world.later(self.world.random.random() * self.step_seconds, self.boundary)
        self.beside()

    def boundary(self) -> None:
        self.tell(Stepped(1, 1.0, b"", self.step_seconds))
        since = self.world.now - self.opened_at
        state = self.state
        ahead = rounds_ahead(
            state.round, state.pace_seconds, since, self.step_seconds, self.case.fragments
        )
        for ask in owed.owed_at_boundary(state, ahead):
            if isinstance(ask, asks.CopyFragments):
                self.tell(Copied(ask.fragments))
            elif isinstance(ask, asks.Adopt):
                self.tell(Adopted(ask.versions, ask.refresh))
        self.beside()
        jitter = 1 + JITTER * (2 * self.world.random.random() - 1)
        self.world.later(self.step_seconds * jitter, self.boundary)

    def beside(self) -> None:
        takes = self.case.transfer_seconds * (1 + 0.2 * (2 * self.world.random.random() - 1))
        for ask in owed.owed_beside(self.state):
            if isinstance(ask, asks.Offer):
                self.tell(OfferBegun(ask.round, ask.copy))
                blob = delta_manifest(f"{self.state.learner} {ask.round}")
                stored = OfferStored(ask.round, ask.copy, blob, takes)
                self.world.later(takes, lambda s=stored: self.then(s))
            else:
                self.tell(FetchBegun(ask.fragment, ask.version))
                fetched = Fetched(ask.fragment, ask.version, takes)
                self.world.later(takes, lambda f=fetched: self.then(f))
        word = outbox.next_word(self.state)
        if word is not None:
            assert not isinstance(word, CheckpointStored)
            self.tell(Spoken(word))
            self.world.later(TAPE_SECONDS, lambda: self.world.syncer.receive(word))

    def then(self, happening: object) -> None:
        self.tell(happening)
        self.beside()


class World:
    """The heap of moments."""

    def __init__(self, case: Case, seed: int) -> None:
        self.now, self.random = 0.0, Random(seed)
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.syncer = Syncer(self, case)
        self.learners = [
            Learner(self, f"l{number}", seconds, case) for number, seconds in enumerate(case.steps)
        ]

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + seconds, self.count, happen))

    def run(self, until: float) -> None:
        while self.heap and self.heap[0][0] <= until:
            self.now, _, happen = heapq.heappop(self.heap)
            happen()


def refuse(verdict: object) -> None:
    raise AssertionError(f"a sound learner was not understood: {verdict}")
