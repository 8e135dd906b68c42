"""A tape as a steady run leaves it, as long as wanted: made by hand, in far less time than a run.

Each round is opened, every learner offers and tells what it adopted, and the round of a while ago
is closed and merged; now and then each learner stores a checkpoint. Admission is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from decodiloco.fragments.schedule import fragment_of
from decodiloco.merge.self_test import self_test
from decodiloco.opening import Opening, encode_opening, run_opened
from decodiloco.store.keys import opening_key
from decodiloco.store.open_store import open_store
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import RULES
from replay.tape_file import Header
from replay.tape_writer import open_writer
from streams.codec import seal
from streams.envelope import Envelope, Source, genesis
from streams.events import Event
from streams.parts import Adoption
from tests.builders import (
    checkpointed,
    joined,
    manifest,
    merged,
    offered,
    round_opened,
    took_over,
    window_closed,
)
from tests.desk import opening_of

FRAGMENTS = 24
OVERLAP = 4  # rounds that are open, or closed and not merged, at once
STEP_TOKENS = 1024
BATCH = 500


class LongTape:
    """Facts of a run of so many learners, one after the other, without end."""

    def __init__(self, learners: int, store_url: str = "memory://bench") -> None:
        self.opening: Opening = opening_of(FRAGMENTS, inner_steps=FRAGMENTS, learners_min=learners)
        self._names = [f"l{number:03d}" for number in range(learners)]
        self._state = begin(self.opening)
        self._store_url = store_url
        self._sequence = 0

    def records(self) -> Iterator[Envelope]:
        """The tape from its first record on."""
        yield self._sealed(run_opened(self.opening, self._store_url, RULES))
        yield self._sealed(took_over(self_test=self_test()))
        for slot, name in enumerate(self._names):
            life = joined(
                name, slot=slot, versions=(0,) * FRAGMENTS, layout_digest=self.opening.layout.digest
            )
            yield self._sealed(life, heard=True)
        for number in count(1):
            yield from self._round(number)

    def _round(self, number: int) -> Iterator[Envelope]:
        fragment = fragment_of(number, FRAGMENTS)
        version = 1 + (number - 1) // FRAGMENTS
        begun = round_opened(number, fragment, version, tokens=self._state.tokens)
        yield self._sealed(begun)
        for name in self._names:
            yield self._sealed(self._offer(name, number, fragment), heard=True)
        if number > OVERLAP:
            yield from self._merge(number - OVERLAP)
        if number % FRAGMENTS == 0:
            for name in self._names:
                learner = self._state.learners[name]
                stored = checkpointed(
                    name, number, incarnation=learner.incarnation, said=learner.said + 1
                )
                yield self._sealed(stored, heard=True)

    def _offer(self, name: str, number: int, fragment: int) -> Event:
        learner = self._state.learners[name]
        steps = number - learner.anchor_steps[fragment]
        return offered(
            name,
            number,
            fragment,
            tokens=steps * STEP_TOKENS,
            tokens_trained=number * STEP_TOKENS,
            inner_steps=steps,
            learner_step=number,
            incarnation=learner.incarnation,
            said=learner.said + 1,
            seen=self._state.position,
            base_version=learner.adopted[fragment],
            cursor=number.to_bytes(8, "big"),
            adopted=self._adopted(number),
        )

    def _adopted(self, number: int) -> tuple[Adoption, ...]:
        """What was merged a round ago is adopted at the step of this one's copy."""
        made = number - OVERLAP - 1
        if made < 1:
            return ()
        fragment = fragment_of(made, FRAGMENTS)
        return (
            Adoption(
                fragment=fragment,
                version=self._state.fragments[fragment].version,
                learner_step=number,
                tokens_trained=number * STEP_TOKENS,
                fetch_seconds=0.25,
            ),
        )

    def _merge(self, number: int) -> Iterator[Envelope]:
        fragment = fragment_of(number, FRAGMENTS)
        version = self._state.rounds[number].version
        offers = [offer.position for offer in self._state.waiting(fragment)]
        yield self._sealed(window_closed(number, fragment, version, offers))
        yield self._sealed(
            merged(
                number, fragment, version, offers, step=self._state.step + 1,
                parameters=manifest(f"parameters {number}"), momentum=manifest(f"moments {number}"),
                state_digest=state_digest(self._state),
            )
        )  # fmt: skip

    def _sealed(self, event: Event, heard: bool = False) -> Envelope:
        state, source = self._state, None
        if heard:
            self._sequence += 1
            source = Source("home", "life", self._sequence)
        position = state.position + 1
        previous = state.digest if state.position else genesis(state.run)
        fence = 0 if position == 1 else 1
        moment = 1.7e9 + 0.25 * position
        envelope = seal(position, previous, fence, "syncer-1", source, moment, event)
        self._state = fold(state, envelope)
        return envelope


def write(folder: Path, learners: int, facts: int) -> Path:
    """A sealed tape file of so many facts, its opening beside it in a store."""
    store_url = f"file://{folder}/store"
    tape = LongTape(learners, store_url)
    payload, named = encode_opening(tape.opening)
    store = open_store(store_url)
    store.put(opening_key(tape.opening.run.name, named), [payload])
    store.close()
    path = folder / "run.tape"
    writer = open_writer(path, Header(tape.opening.run.name, store_url))
    for batch in _batches(tape.records(), facts):
        writer.append(batch)
    writer.seal()
    return path


def _batches(records: Iterable[Envelope], facts: int) -> Iterator[list[Envelope]]:
    batch: list[Envelope] = []
    for place, envelope in enumerate(records, 1):
        batch.append(envelope)
        if len(batch) == BATCH or place == facts:
            yield batch
            batch = []
        if place == facts:
            return
