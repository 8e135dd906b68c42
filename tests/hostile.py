"""A speaker that lies: a learner's side of the protocol over real places, with every word bent.

Its sound words are sound: four steps of a hundred tokens from the newest version. What is said
instead is up to the test.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from decodiloco.fragments.schedule import fragment_of
from decodiloco.opening import Opening
from decodiloco.places import Places
from decodiloco.store.keys import key_of_offer
from decodiloco.store.tensors import Encoded, encode_tensors
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.state import State
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    DeltaRefused,
    FragmentMerged,
    LearnerJoined,
    MergeAbandoned,
    WindowClosed,
)
from tests.builders import adopted, joined, offered

STEPS, TOKENS = 4, 100
T = TypeVar("T")


@dataclass(frozen=True)
class End:
    """What became of an offer: the fact, and the reason if there is one."""

    kind: str
    reason: str
    envelope: Envelope
    position: int = 0


class Follower:
    """The tape as it comes, folded, and a way to wait for what it will say."""

    def __init__(self, places: Places, opening: Opening) -> None:
        self.places = places
        self.state: State = begin(opening)
        self.tape: list[Envelope] = []
        self._news = asyncio.Condition()

    async def follow(self) -> None:
        """Until cancelled."""
        async with aclosing(self.places.tape.follow(0)) as records:
            async for envelope in records:
                self.state = fold(self.state, envelope)
                async with self._news:
                    self.tape.append(envelope)
                    self._news.notify_all()

    async def first(
        self, found: Callable[[Envelope], T | None], after: int = 0, seconds: float = 60.0
    ) -> T:
        """The first thing that is found behind a position."""
        at = after
        async with asyncio.timeout(seconds):
            while True:
                while at < len(self.tape):
                    at += 1
                    thing = found(self.tape[at - 1])
                    if thing is not None:
                        return thing
                async with self._news:
                    while len(self.tape) == at:
                        await self._news.wait()

    async def merges(self, count: int, after: int | None = None) -> list[Envelope]:
        """So many merges behind a position, as they come."""
        at = len(self.tape) if after is None else after
        merges: list[Envelope] = []
        while len(merges) < count:
            merges.append(await self.first(merge_in, at))
            at = merges[-1].position
        return merges

    def facts(self, kind: type[T]) -> list[T]:
        return [envelope.event for envelope in self.tape if isinstance(envelope.event, kind)]


def merge_in(envelope: Envelope) -> Envelope | None:
    return envelope if isinstance(envelope.event, FragmentMerged) else None


@asynccontextmanager
async def following(places: Places, opening: Opening) -> AsyncGenerator[Follower, None]:
    follower = Follower(places, opening)
    task = asyncio.create_task(follower.follow())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()


class Liar:
    """One learner id that says what it likes."""

    def __init__(self, follower: Follower, name: str) -> None:
        self.follower = follower
        self.name = name
        self.step = 0
        self.said = 0
        self.incarnation = 0

    @property
    def inbox(self) -> Any:
        """The home inbox: it also takes any bytes (`say_raw`)."""
        return self.follower.places.inboxes["home"]

    async def join(self) -> int:
        """Begins a life, as a learner would; its incarnation."""
        state, nonce = self.follower.state, secrets.token_bytes(16)
        known = state.learners.get(self.name)
        self.step, self.said = (known.learner_step if known else 0), 0
        word = joined(
            self.name,
            nonce=nonce,
            seen=state.position,
            layout_digest=state.layout.digest,
            versions=state.versions,
            learner_step=self.step,
            tokens_trained=known.tokens_trained if known else 0,
        )
        await self.inbox.say(word)
        self.incarnation = await self.follower.first(
            lambda e: (
                e.position
                if isinstance(e.event, LearnerJoined) and e.event.nonce == nonce
                else None
            )
        )
        return self.incarnation

    def arrays(self, fragment: int, scale: float = 1e-3) -> dict[str, np.ndarray]:
        """A delta of the right tensors: its elements follow from the step."""
        chance = np.random.Generator(np.random.Philox(self.step))
        return {
            tensor.name: scale * chance.standard_normal(tensor.shape, dtype=np.float32)
            for tensor in self.follower.state.layout.of(fragment)
        }

    def encoded(self, arrays: Mapping[str, np.ndarray]) -> Encoded:
        """As an honest learner codes it."""
        return encode_tensors(arrays, self.follower.state.config.codecs.delta, squares=True)

    def word(self, delta: Encoded, **fields: object) -> DeltaOffered:
        """Four more steps from the newest version of the fragment of the newest round."""
        state = self.follower.state
        learner, fragment = state.learners[self.name], self.fragment
        begin, newest = self.step, state.versions[fragment]
        self.step, self.said = self.step + STEPS, self.said + 1
        seen = ()
        if newest > learner.adopted[fragment]:
            seen = (adopted(fragment, newest, learner_step=begin, tokens_trained=TOKENS * begin),)
        else:
            begin = learner.anchor_steps[fragment]
        return offered(
            self.name,
            **{
                "incarnation": self.incarnation,
                "said": self.said,
                "round": state.next_round - 1,
                "fragment": fragment,
                "base_version": newest,
                "learner_step": self.step,
                "inner_steps": self.step - begin,
                "tokens": TOKENS * (self.step - begin),
                "tokens_trained": TOKENS * self.step,
                "step_seconds": 0.01,
                "upload_seconds": 0.01,
                "adopted": seen,
                "manifest": delta.manifest,
                **fields,
            },
        )

    @property
    def fragment(self) -> int:
        """The fragment of the newest round."""
        state = self.follower.state
        return fragment_of(state.next_round - 1, len(state.fragments))

    async def offer(
        self, delta: Encoded | None = None, stored: bool = True, **fields: object
    ) -> End:
        """Stores a delta (a sound one by default), offers it, and waits for what becomes of it."""
        delta = delta or self.encoded(self.arrays(self.fragment))
        word = self.word(delta, **fields)
        if stored:
            key = key_of_offer(self.follower.state.run, word)
            await asyncio.to_thread(self.follower.places.store.put, key, delta.parts)
        return await self.say(word)

    async def say(self, word: DeltaOffered) -> End:
        """Says an offer; what the tape says of it in the end."""
        before = len(self.follower.tape)
        await self.inbox.say(word)
        admitted = await self.follower.first(lambda e: _admitted(e, word), before)
        if isinstance(admitted.event, DeltaRefused):
            return End("refused", admitted.event.reason, admitted)
        return await self.follower.first(lambda e: end_in(e, admitted.position), admitted.position)


def _born(envelope: Envelope, nonce: bytes) -> int | None:
    event = envelope.event
    return envelope.position if isinstance(event, LearnerJoined) and event.nonce == nonce else None


def _admitted(envelope: Envelope, word: DeltaOffered) -> Envelope | None:
    event = envelope.event
    if not isinstance(event, DeltaOffered | DeltaRefused):
        return None
    same = (event.learner, event.incarnation, event.said) == (
        word.learner, word.incarnation, word.said
    )  # fmt: skip
    return envelope if same else None


def end_in(envelope: Envelope, position: int) -> End | None:
    """What this fact says became of the offer at a position, if it says something."""
    match envelope.event:
        case FragmentMerged() | MergeAbandoned() as event:
            for each in event.left_out:
                if each.position == position:
                    kind = "left_out" if isinstance(event, FragmentMerged) else "abandoned"
                    return End(kind, each.reason, envelope, position)
            if isinstance(event, FragmentMerged) and position in event.contributions:
                return End("merged", "", envelope, position)
        case WindowClosed(superseded=superseded) if position in superseded:
            return End("superseded", "", envelope, position)
        case _:
            pass
    return None
