"""Snapshots as whoever goes on from one reads them: found on the tape, newest first, and checked.

A snapshot is what a syncer said of its state. The tape names it by its digest; whether it says so
of this run, of that position and by rules that are followed here is checked at this one door.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count

from decodiloco.errors import BlobCorrupt, BlobMissing, RulesUnknown
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import snapshot_key
from decodiloco.store.small import read_small
from decodiloco.syncer.snapshot import decode_state
from decodiloco.syncer.state import RULES, State
from streams.envelope import Envelope
from streams.events import SnapshotStored
from streams.manifest import Manifest
from streams.tape import BATCH_MAX, Tape

LOOKS_MAX = 100
"""Reads of BATCH_MAX records each, from the end asked for back, in search of a snapshot."""

TRIES_MAX = 3
"""Snapshots that are tried before a fold begins with the first fact."""

UNUSABLE = "a snapshot cannot be used"

Note = Callable[[str], None]


def check_rules(rules: int, what: str) -> None:
    """Raises RulesUnknown for what was written by rules that this build does not follow."""
    if rules != RULES:
        raise RulesUnknown(
            f"{what}: written by rules {rules}, and this build knows rules {RULES}; install the "
            f"decodiloco whose rules are {rules}"
        )


def read_snapshot(store: BlobStore, opening: Opening, position: int, manifest: Manifest) -> State:
    """The state that a snapshot of this position holds.

    Raises BlobMissing or BlobCorrupt for one that cannot be used, RulesUnknown for other rules.
    """
    key = snapshot_key(opening.run.name, position, manifest)
    state = decode_state(opening, read_small(store, key, manifest))
    if state.run != opening.run.name:
        raise BlobCorrupt(f"blob {key}: it is of run {state.run}")
    if state.position != position:
        raise BlobCorrupt(
            f"blob {key}: it is of position {state.position}, and named as of {position}"
        )
    check_rules(state.rules, f"blob {key}")
    return state


def read_named(store: BlobStore, opening: Opening, envelope: Envelope) -> State:
    """The state in the snapshot that a fact names, which is of a position before that fact.

    Raises as `read_snapshot` does.
    """
    event = envelope.event
    assert isinstance(event, SnapshotStored)
    if event.position >= envelope.position:
        raise BlobCorrupt(
            f"position {envelope.position} names a snapshot of position {event.position}, which "
            "was not there yet"
        )
    return read_snapshot(store, opening, event.position, event.manifest)


async def newest_state(
    tape: Tape, store: BlobStore, opening: Opening, end: int, first: int, note: Note
) -> State | None:
    """The state of the newest usable snapshot of a position before `first`, or None.

    It is sought in the records up to position `end`. `note` hears of each that cannot be used.
    """
    tries = count(1)
    async for envelope in _named_back(tape, end):
        event = envelope.event
        assert isinstance(event, SnapshotStored)
        if event.position >= first:
            continue
        try:
            return await asyncio.to_thread(read_named, store, opening, envelope)
        except (BlobMissing, BlobCorrupt) as error:
            note(f"{UNUSABLE}: {error}")
        if next(tries) == TRIES_MAX:
            return None
    return None


async def _named_back(tape: Tape, end: int) -> AsyncIterator[Envelope]:
    """The facts up to a position that name snapshots, the newest first."""
    for _ in range(LOOKS_MAX):
        if end <= 0:
            return
        start = max(0, end - BATCH_MAX)
        for envelope in reversed(await tape.read(start, end - start)):
            if isinstance(envelope.event, SnapshotStored):
                yield envelope
        end = start
