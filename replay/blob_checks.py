"""Whole blobs read and checked against what the tape says of them. Each returns bytes checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.fragments.layout import Tensor
from decodiloco.store.blobs import BlobStore
from decodiloco.store.small import read_small
from decodiloco.store.tensors import RAW, TensorBlob, open_tensors
from replay.errors import BlobGone, Differs
from streams.manifest import Manifest

READ_BYTES = 8 * 1024 * 1024
COMPARED_BYTES = 1 << 18  # what is compared at once stays in the cache
ELEMENTS = 1 << 20
SMALL = "msgpack"

Part = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Check:
    """One piece of work on bytes, for the fact at `position`; it may run in any thread.

    `run` returns how many bytes it checked, or raises Differs. `is_merge`: it makes one again.
    `later`: the rest of a check whose bytes a merge reads, for when it is needed sooner than that
    merge; `reads`: the positions of the checks whose rest this one does on its way.
    """

    position: int
    run: Callable[[], int]
    is_merge: bool = False
    later: Callable[[], int] | None = None
    reads: tuple[int, ...] = ()


def tensors_whole(
    store: BlobStore,
    key: str,
    manifest: Manifest,
    position: int,
    tensors: Sequence[Tensor] | None = None,
) -> int:
    """Reads a blob of tensors to its last byte: its header and every chunk have their digests.

    With `tensors` it must hold these, in their shapes.
    """
    _check_size(store, key, manifest, position)
    try:
        blob = open_tensors(store, key, manifest)
        if tensors is not None:
            check_holds(blob, tensors)
        for name in blob.names:
            if manifest.codec == RAW:
                blob.read_raw(name)
            else:
                for _ in blob.chunks(name, ELEMENTS):
                    pass
    except (BlobCorrupt, BlobMissing) as error:
        raise unread(error)(_told(error, key), position, key) from None
    return manifest.bytes


def tensors_there(store: BlobStore, key: str, manifest: Manifest, position: int) -> int:
    """Checks a blob's size and header alone: a merge is to read the rest, and counts the bytes."""
    _check_size(store, key, manifest, position)
    try:
        open_tensors(store, key, manifest)
    except (BlobCorrupt, BlobMissing) as error:
        raise unread(error)(_told(error, key), position, key) from None
    return 0


def check_holds(blob: TensorBlob, tensors: Sequence[Tensor]) -> None:
    """Raises BlobCorrupt when a blob does not hold just these tensors, sorted by name."""
    found = tuple((name, blob.shape(name)) for name in blob.names)
    if blob.codec == RAW or found != tuple((one.name, one.shape) for one in tensors):
        raise BlobCorrupt(f"blob {blob.key}: it does not hold the tensors of the run's layout")


def small_whole(store: BlobStore, key: str, manifest: Manifest, position: int) -> bytes:
    """Reads a small blob, all of it: its size and its bytes are those that were named."""
    if manifest.codec != SMALL:
        raise Differs(f"the blob was named as {manifest.codec}; it is {SMALL}", position, key)
    _check_size(store, key, manifest, position)
    try:
        return read_small(store, key, manifest)
    except (BlobCorrupt, BlobMissing) as error:
        raise unread(error)(_told(error, key), position, key) from None


def same_bytes(
    store: BlobStore, key: str, manifest: Manifest, parts: Sequence[Part], position: int
) -> int:
    """Compares a stored blob, byte for byte, with what it is when it is made again."""
    _check_size(store, key, manifest, position)
    try:
        start = 0
        for part in _pieces(parts):
            differs_at = _first_difference(store.read(key, start, start + part.nbytes), part)
            if differs_at is not None:
                at = start + differs_at
                raise Differs(f"the stored blob differs at byte {at}", position, key)
            start += part.nbytes
    except (BlobCorrupt, BlobMissing) as error:
        raise unread(error)(_told(error, key), position, key) from None
    return manifest.bytes


def told_apart(store: BlobStore, key: str, manifest: Manifest, parts: Sequence[Part]) -> str:
    """In words, how many bytes of a stored blob differ from what was made again, behind its header.

    The first of several `parts` is the header, whose digests differ with any of the bytes.
    """
    _check_size(store, key, manifest, None)
    header, rest = (parts[:1], parts[1:]) if len(parts) > 1 else ((), parts)
    start = sum(memoryview(part).nbytes for part in header)
    whole = start + sum(memoryview(part).nbytes for part in rest)
    if manifest.bytes != whole:
        return f"the stored blob has {manifest.bytes:,} bytes, the one made again {whole:,}"
    count, first, at = 0, -1, start
    for part in _pieces(rest):
        stored = np.frombuffer(store.read(key, at, at + part.nbytes), np.uint8)
        unlike = np.flatnonzero(stored != np.frombuffer(part, np.uint8))
        if unlike.size and first < 0:
            first = at + int(unlike[0])
        count += int(unlike.size)
        at += part.nbytes
    told = f"{count:,} of {whole - start:,} bytes behind the stored blob's header differ"
    return told + (f", the first at byte {first:,}" if count else "")


def _check_size(store: BlobStore, key: str, manifest: Manifest, position: int | None) -> None:
    size = store.size(key)
    if size is None:
        raise BlobGone(f"the blob is not in {store.url}; restore it there", position, key)
    if size != manifest.bytes:
        raise Differs(
            f"the blob has {size} bytes and was named with {manifest.bytes}", position, key
        )


def _pieces(parts: Sequence[Part]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, view.nbytes, READ_BYTES):
            yield view[start : start + READ_BYTES]


def _first_difference(one: Part, other: Part) -> int | None:
    """Where two parts of one length differ first. A memoryview is compared byte by byte, slowly."""
    mine, theirs = (np.frombuffer(each, np.uint8) for each in (one, other))
    for start in range(0, len(mine), COMPARED_BYTES):
        piece = slice(start, start + COMPARED_BYTES)
        if not np.array_equal(mine[piece], theirs[piece]):
            return start + int(np.flatnonzero(mine[piece] != theirs[piece])[0])
    return None


def unread(error: BlobCorrupt | BlobMissing) -> type[Differs]:
    """The kind of difference that a blob makes which could not be read."""
    return BlobGone if isinstance(error, BlobMissing) else Differs


def _told(error: Exception, key: str) -> str:
    """The store's message without the key, which stands beside it anyway."""
    return str(error).replace(f"blob {key}: ", "").replace(f"blob {key} ", "the blob ")
