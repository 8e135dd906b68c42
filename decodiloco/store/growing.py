"""A blob of float32 tensors that is made piece by piece, in any order, by several threads.

A blob begins with its chunks' digests, so its payload waits until the last of them is known; each
chunk is digested as soon as it is whole, while others are still made. Knows tensors by name;
nothing of merging.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Lock, Semaphore
from typing import Protocol, TypeVar

import numpy as np
from blake3 import blake3

from decodiloco.store.aside import Bytes, Room, room_for
from decodiloco.store.blobs import Late, LateParts
from decodiloco.store.codecs import LOSSLESS
from decodiloco.store.header import CHUNK_BYTES, ITEM_BYTES, Entry, place
from decodiloco.store.tensors import Encoded, Floats, headed

_DTYPE = "F32"
_ITEM_BYTES = ITEM_BYTES[_DTYPE]

BEHIND_MAX = 32
"""Pieces that are settled and not written yet: of 1 MiB each, as a merge makes them."""

T = TypeVar("T")


class Submit(Protocol):
    """Has work done beside whoever asks, what was asked for first begun first."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


class Growing:
    """A blob, of tensors in the order of their names, whose elements come bit by bit.

    Digests are taken, and a file is written, where `submit` sends it, beside whoever makes the
    elements.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], submit: Submit) -> None:
        self._named = [(name, _DTYPE, shapes[name]) for name in sorted(shapes)]
        entries = place(self._named)
        self._entries = {entry.name: entry for entry in entries}
        self._nbytes = nbytes = entries[-1].stop if entries else 0
        self._room = room_for(nbytes)
        self._submit = submit if nbytes > CHUNK_BYTES else _at_once  # of one: nothing is beside it
        starts = range(0, nbytes, CHUNK_BYTES)
        self._missing = [min(CHUNK_BYTES, nbytes - start) for start in starts]
        self._digests: list[Future[bytes] | None] = [None for _ in starts]
        self._writes: list[list[Future[None]]] = [[] for _ in starts]
        self._behind = Semaphore(BEHIND_MAX)
        self._lock = Lock()

    def tensor(self, name: str) -> Rows:
        """The room of one tensor."""
        return Rows(self, self._room, self._entries[name])

    def encoded(self) -> Encoded:
        """The whole blob, of which every element is settled. Waits for the last digests."""
        assert not any(self._missing), "elements that were never settled"
        chunks = tuple(digest.result() for digest in self._digests if digest is not None)
        start, manifest = headed(self._named, chunks, LOSSLESS)
        if self._room.in_memory:
            payload = self._room.look(0, self._nbytes)
            return Encoded((start, payload) if self._nbytes else (start,), manifest)
        late = [(len(start), lambda: start), *map(self._late, range(len(chunks)))]
        return Encoded(LateParts(late), manifest)

    def settle(self, start: int, piece: Bytes) -> None:
        """Keeps these bytes of the payload for the last time; nobody writes to them any more."""
        if self._room.in_memory:
            written = None
            self._room.keep(start, piece)
        else:
            self._behind.acquire()
            written = self._submit(partial(self._write, start, piece))
        stop = start + piece.nbytes
        while start < stop:
            index = start // CHUNK_BYTES
            end = min(stop, (index + 1) * CHUNK_BYTES)
            with self._lock:
                if written is not None:
                    self._writes[index].append(written)
                self._missing[index] -= end - start
                missing = self._missing[index]
            assert missing >= 0, "settled twice"
            if not missing:
                self._digests[index] = self._submit(partial(self._digest, index))
            start = end

    def _late(self, index: int) -> Late:
        size_bytes = min(CHUNK_BYTES, self._nbytes - index * CHUNK_BYTES)
        return size_bytes, lambda: self._chunk(index)

    def _chunk(self, index: int) -> memoryview:
        start = index * CHUNK_BYTES
        return self._room.look(start, min(start + CHUNK_BYTES, self._nbytes))

    def _write(self, start: int, piece: Bytes) -> None:
        try:
            self._room.keep(start, piece)
        finally:
            self._behind.release()

    def _digest(self, index: int) -> bytes:
        """The writes that this waits for were begun before it, and themselves wait for nothing."""
        for written in self._writes[index]:
            written.result()
        return blake3(self._chunk(index)).digest()


class Rows:
    """One tensor's elements within a growing blob: see `decodiloco.merge.places.Place`."""

    def __init__(self, blob: Growing, room: Room, entry: Entry) -> None:
        self.elements = math.prod(entry.shape)
        self._blob = blob
        self._room = room
        self._first = entry.start

    def lend(self, start: int, stop: int) -> Floats:
        return self._room.lend(self._at(start), self._at(stop)).view(np.float32)

    def keep(self, start: int, piece: Floats) -> None:
        self._room.keep(self._at(start), piece.view(np.uint8))

    def kept(self, start: int, stop: int) -> Floats:
        return self._room.read(self._at(start), self._at(stop)).view(np.float32)

    def settle(self, start: int, piece: Floats) -> None:
        self._blob.settle(self._at(start), piece.view(np.uint8))

    def _at(self, element: int) -> int:
        return self._first + element * _ITEM_BYTES


def _at_once(work: Callable[[], T]) -> Future[T]:
    done: Future[T] = Future()
    done.set_result(work())
    return done
