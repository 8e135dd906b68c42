"""What a horizon let go of, read from the tape and deleted. Thin: what may go is decided beside it.

A sweep may be broken off anywhere and made again: the list comes from the tape alone, and to
delete what is gone already does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from decodiloco.store.blobs import BlobStore
from decodiloco.store.retention import Named, may_go
from streams.envelope import Envelope
from streams.tape import BATCH_MAX, Tape, read_surely


async def named_facts(tape: Tape, kept: Iterable[int], after: int, last: int) -> list[Named]:
    """The facts that name blobs which may go: of these `kept` positions, and of all `after`.

    Raises ChainBroken for a tape that lacks one of them: a kept fact that is passed over is swept.
    """
    found: list[Named] = []
    for position in kept:
        found += _naming(await read_surely(tape, position - 1, 1))
    while after < last:
        records = await read_surely(tape, after, min(BATCH_MAX, last - after))
        found += _naming(records)
        after = records[-1].position
    return found


def sweep(store: BlobStore, keys: Iterable[str], check: Callable[[], None]) -> None:
    """Deletes these blobs. `check` is called before each, and may raise.

    Raises StoreUnreachable or StoreDenied; what was deleted by then stays deleted.
    """
    for key in keys:
        check()
        store.delete(key)


def _naming(records: Iterable[Envelope]) -> list[Named]:
    return [Named(each.position, each.event) for each in records if may_go(each.event)]
