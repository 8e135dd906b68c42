"""Where a shadow begins: at the opening, or at the newest snapshot before a position."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import snapshot_key
from decodiloco.store.small import read_small
from decodiloco.syncer.snapshot import decode_state
from decodiloco.syncer.state import State
from replay.errors import NotReached
from replay.follow.shadow import Shadow
from replay.place import Place
from replay.state import opened_by, read_opening
from streams.errors import PermissionDenied
from streams.events import RunOpened, SnapshotStored
from streams.jetstream import Connection
from streams.tape import BATCH_MAX, Tape

LOOKS_MAX = 100
"""Reads of BATCH_MAX records each, back from the position asked for, in search of a snapshot."""


def whole_tape(connection: Connection, run: str) -> Tape:
    """The run's tape, all of it. Raises PermissionDenied for a learner, who reads its own part."""
    identity = connection.identity
    if identity is not None and identity.role == "learner":
        raise PermissionDenied(
            f"{identity} reads its own part of the tape only: follow with a viewer's key"
        )
    return connection.tape(run)


async def open_blobs(tape: Tape, place: Place) -> tuple[BlobStore, RunOpened]:
    """The run's store; the tape's first record tells where it is. The caller closes it."""
    records = await tape.read(0, 1)
    opened = opened_by(records[0] if records else None, place)
    return await asyncio.to_thread(place.open_store, opened), opened


async def first_of(tape: Tape, asked: str) -> int:
    """The position that `--from` means; `now` is the next one that will be written."""
    last = await tape.last()
    if asked == "now":
        return last + 1
    if not asked.isdecimal() or not 1 <= int(asked) <= 2**53:
        raise NotReached(f"--from {asked!r}: write a position, 1 or more, or now")
    if int(asked) > last + 1:
        raise NotReached(f"--from {asked}: the tape of run {tape.run} ends at position {last}")
    return int(asked)


async def begin_shadow(
    tape: Tape, store: BlobStore, opened: RunOpened, first: int, note: Callable[[str], None]
) -> Shadow:
    """A shadow that checks bytes from `first` on, folded to where it begins."""
    opening = await asyncio.to_thread(read_opening, store, opened)
    state = await _newest_before(tape, store, opening, first, note) if first > 1 else None
    if state is not None:
        note(
            f"beginning at the snapshot of position {state.position}, whose claims are taken as "
            f"they are; bytes are checked from position {first} on"
        )
    return await asyncio.to_thread(Shadow, store, opening, state, first)


async def _newest_before(
    tape: Tape, store: BlobStore, opening: Opening, first: int, note: Callable[[str], None]
) -> State | None:
    """The state in the newest snapshot of a position before `first`; None for none in reach."""
    stop = first + BATCH_MAX  # a snapshot is stored a little after the position that it is of
    for _ in range(LOOKS_MAX):
        if stop <= 0:
            return None
        start = max(0, stop - BATCH_MAX)
        records = await tape.read(start, stop - start)
        for envelope in reversed(records):
            event = envelope.event
            if not isinstance(event, SnapshotStored) or event.position >= first:
                continue
            key = snapshot_key(tape.run, event.position, event.manifest)
            try:
                payload = await asyncio.to_thread(read_small, store, key, event.manifest)
                state = decode_state(opening, payload)
                if state.position == event.position:
                    return state
                raise BlobCorrupt(f"blob {key}: it is of position {state.position}")
            except (BlobMissing, BlobCorrupt) as error:
                note(f"a snapshot cannot be used, trying an older one: {error}")
        stop = start
    return None
