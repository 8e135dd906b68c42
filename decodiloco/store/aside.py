"""Room for bytes that are made piece by piece: memory for few, an unnamed file for many.

The file has no name from its first moment on, so the kernel takes its space back when this process
lets go of it, or dies. It lies where `tempfile` puts it: TMPDIR names the folder. Knows bytes only.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from decodiloco.errors import StoreUnreachable

HELD_BYTES_MAX = 64 * 1024 * 1024
"""What is longer waits in a file: as fast as fresh memory, while the page cache has room."""

Bytes = npt.NDArray[np.uint8]


class Room(Protocol):
    """Room for so many bytes. Several threads may use it, each its own part."""

    in_memory: bool

    def lend(self, start: int, stop: int) -> Bytes:
        """Where these bytes may be written; they count once they are kept."""

    def keep(self, start: int, piece: Bytes) -> None:
        """Keeps what was lent, or read, from `start` on, as it is now."""

    def read(self, start: int, stop: int) -> Bytes:
        """What was kept there. It may be written to, and kept again."""


class Memory:
    """Room in memory: what is lent and read is the room itself."""

    in_memory = True

    def __init__(self, nbytes: int) -> None:
        self._bytes = np.empty(nbytes, np.uint8)

    def lend(self, start: int, stop: int) -> Bytes:
        return self._bytes[start:stop]

    def keep(self, start: int, piece: Bytes) -> None:
        assert np.may_share_memory(piece, self._bytes), "kept is what was lent"

    def read(self, start: int, stop: int) -> Bytes:
        return self._bytes[start:stop]


class File:
    """Room in an unnamed file, which is gone when nobody looks at this room any more."""

    in_memory = False

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        with self._troubles(), tempfile.TemporaryFile(buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def lend(self, start: int, stop: int) -> Bytes:
        return np.empty(stop - start, np.uint8)

    def keep(self, start: int, piece: Bytes) -> None:
        left = piece.data
        with self._troubles():
            while left.nbytes:
                written = os.pwrite(self._descriptor, left, start)
                left, start = left[written:], start + written

    def read(self, start: int, stop: int) -> Bytes:
        piece = np.empty(stop - start, np.uint8)
        left = piece.data
        with self._troubles():
            while left.nbytes:
                got = os.preadv(self._descriptor, [left], start)
                if not got:
                    raise OSError(errno.EIO, "the file is shorter than what was kept in it")
                left, start = left[got:], start + got
        return piece

    @contextmanager
    def _troubles(self) -> Iterator[None]:
        """Says what the file system said, and what to do about it."""
        try:
            yield
        except OSError as error:
            raise StoreUnreachable(
                f"{self._nbytes / 1e6:.0f} MB cannot wait in a file of "
                f"{_folder()}: {error.strerror or error}; free some space there, or let TMPDIR "
                "name another folder"
            ) from error


def room_for(nbytes: int) -> Room:
    """Room in memory, or in a file if it would be more than HELD_BYTES_MAX."""
    return Memory(nbytes) if nbytes <= HELD_BYTES_MAX else File(nbytes)


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "this machine"
