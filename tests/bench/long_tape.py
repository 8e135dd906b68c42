"""A long tape as a syncer would have written it, with the snapshots that it would have stored.

Every fact follows from those before it by the real fold; the deltas and merges that it names were
never made, so a fold can be measured on it, and no merge. Written at once, never held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from decodiloco.config import Run
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.fragments.schedule import fragment_of
from decodiloco.opening import Opening, encode_opening, run_opened
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import opening_key, snapshot_key
from decodiloco.store.open_store import open_store
from decodiloco.store.small import put_small
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import encode_state, state_digest
from decodiloco.syncer.state import RULES, State
from replay.tape_file import Header, encode_header
from streams.codec import digest_of, encode_envelope
from streams.envelope import Envelope, genesis
from streams.events import CheckpointStored, Event, SnapshotStored
from streams.framing import encode_record, encode_seal
from streams.manifest import Manifest
from tests.builders import (
    adopted,
    digest,
    joined,
    manifest,
    merged,
    offered,
    round_opened,
    took_over,
    window_closed,
)

RUN = "long"
LEARNERS = 32
FRAGMENTS = 8
SNAPSHOT_MERGES = 10
CHECKPOINTS = 8  # of each learner in each round: facts of the usual size that are quick to make
STEP_TOKENS = 100


class LongTape:
    """Writes `folder`/run.tape and `folder`/store. `stretches`: positions just before a snapshot.

    A state there is the farthest from the snapshot before it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.tape"
        self.stretches: list[int] = []
        self._store: BlobStore = open_store((folder / "store").as_uri())
        self._opening = _opening(self._store)
        self._state: State = begin(self._opening)
        self._file = self.path.open("wb")
        self._hasher = blake3()
        self._put(encode_header(Header(RUN, self._store.url)))

    def write(self, facts_min: int) -> LongTape:
        """At least so many facts, the last of them a merge."""
        self._append(run_opened(self._opening, self._store.url, RULES), fence=0)
        self._append(took_over(fence=1))
        self._lives = [self._join(place) for place in range(LEARNERS)]
        number = 0
        while self._state.position < facts_min:
            number += 1
            self._round(number)
        seal = encode_seal(self._state.position, self._state.digest, self._hasher)
        self._file.write(seal)
        self._file.close()
        return self

    def _join(self, place: int) -> int:
        name = _name(place)
        self._append(joined(name, slot=place, versions=(0,) * FRAGMENTS))
        return self._state.position

    def _round(self, number: int) -> None:
        fragment = fragment_of(number, FRAGMENTS)
        version = self._state.versions[fragment] + 1
        self._append(round_opened(number, fragment, version))
        first = self._state.position + 1
        for event in self._offers(number, fragment, version):
            self._append(event)
        for event in self._checkpoints(number):
            self._append(event)
        members = range(first, first + LEARNERS)
        self._append(window_closed(number, fragment, version, members))
        step, found = self._state.step + 1, state_digest(self._state)
        self._append(merged(number, fragment, version, members, step=step, state_digest=found))
        if step % SNAPSHOT_MERGES == 0:
            self._snapshot()

    def _offers(self, number: int, fragment: int, version: int) -> Iterator[Event]:
        """Everybody trains one step, adopts the round before, and answers this one."""
        inner_steps = min(number, FRAGMENTS)
        before = fragment_of(number - 1, FRAGMENTS) if number > 1 else None
        delta = manifest("delta", codec="bf16")
        for place in range(LEARNERS):
            adoptions = () if before is None else (self._adoption(before, number - 1),)
            yield offered(
                _name(place),
                number,
                fragment,
                STEP_TOKENS * inner_steps,
                incarnation=self._lives[place],
                said=1 + (number - 1) * (1 + CHECKPOINTS),
                seen=self._state.position,
                base_version=version - 1,
                learner_step=number,
                inner_steps=inner_steps,
                tokens_trained=STEP_TOKENS * number,
                adopted=adoptions,
                manifest=delta,
            )

    def _checkpoints(self, number: int) -> Iterator[Event]:
        stored = manifest("checkpoint")
        for more in range(2, 2 + CHECKPOINTS):
            for place in range(LEARNERS):
                yield CheckpointStored(
                    learner=_name(place),
                    incarnation=self._lives[place],
                    said=more + (number - 1) * (1 + CHECKPOINTS),
                    learner_step=number,
                    step=number - 1,
                    manifest=stored,
                )

    def _adoption(self, fragment: int, step: int) -> object:
        return adopted(
            fragment,
            self._state.versions[fragment],
            learner_step=step,
            tokens_trained=STEP_TOKENS * step,
        )

    def _snapshot(self) -> None:
        self.stretches.append(self._state.position)
        position = self._state.position
        stored = put_small(
            self._store, lambda named: snapshot_key(RUN, position, named), encode_state(self._state)
        )
        self._append(SnapshotStored(position=position, manifest=stored))

    def _append(self, event: Event, fence: int = 1) -> None:
        state = self._state
        position, previous = state.position + 1, state.digest or genesis(RUN)
        bare = Envelope(position, previous, fence, "syncer-1", None, float(position), event)
        payload = encode_envelope(bare)
        sealed = Envelope(
            position, previous, fence, "syncer-1", None, float(position), event, digest_of(payload)
        )
        self._state = fold(state, sealed)
        self._put(encode_record(payload))

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._hasher.update(data)


def _name(place: int) -> str:
    return f"l{place:02}"


def _opening(store: BlobStore) -> Opening:
    run = Run.model_validate(
        {
            "name": RUN,
            "fragments": FRAGMENTS,
            "inner_steps": FRAGMENTS,
            "snapshot_merges": SNAPSHOT_MERGES,
        }
    )
    tensors = tuple(
        Tensor(name=f"t{fragment}", shape=(4,), dtype="float32", fragment=fragment, rule="radial")
        for fragment in range(FRAGMENTS)
    )
    first = tuple(
        Manifest(bytes=4096, digest=digest(f"f{fragment}"), codec="fp32")
        for fragment in range(FRAGMENTS)
    )
    opening = Opening(run, Layout(fragments=FRAGMENTS, tensors=tensors), first)
    payload, named = encode_opening(opening)
    store.put(opening_key(RUN, named), [payload])
    return opening
