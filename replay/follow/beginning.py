"""Where a shadow begins: at the opening, or at the newest snapshot before a position."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from decodiloco.store.blobs import BlobStore
from decodiloco.syncer.stored_snapshot import newest_state
from replay.errors import NotReached
from replay.follow.shadow import Shadow
from replay.place import Place
from replay.state import opened_by, read_opening
from streams.errors import PermissionDenied
from streams.events import RunOpened
from streams.jetstream import Connection
from streams.tape import BATCH_MAX, Tape


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
    end = first + BATCH_MAX  # a snapshot is stored a little after the position that it is of
    state = await newest_state(tape, store, opening, end, first, note) if first > 1 else None
    if state is not None:
        note(
            f"beginning at the snapshot of position {state.position}, whose claims are taken as "
            f"they are; bytes are checked from position {first} on"
        )
    return await asyncio.to_thread(Shadow, store, opening, state, first)
