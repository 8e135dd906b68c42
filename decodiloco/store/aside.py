"""Room for bytes that are made piece by piece: memory for few, an unnamed file for many.

Memory is lent again once nobody looks at it, so that merge after merge takes the same.

The file has no name from its first moment on, so the kernel takes its space back when this process
lets go of it, or dies. It lies where `tempfile` puts it: TMPDIR names the folder. Knows bytes only.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import numpy as np
import numpy.typing as npt

from decodiloco.errors import StoreUnreachable

HELD_BYTES_MAX = 128 * 1024 * 1024
"""What is longer waits in a file: never more than twice this of one merge is in memory."""

KEPT_BYTES_MAX = 2 * HELD_BYTES_MAX
"""What a process keeps of it from one merge to the next: as much as one takes."""

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

    def look(self, start: int, stop: int) -> memoryview:
        """What was kept there for the last time. It must not be written to."""


class Spare:
    """Memory that nobody looks at any more, kept for whoever wants as much next.

    The kernel fills fresh memory with zeros first, in the time of whoever writes to it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: list[Bytes] = []  # changed by single calls: a finalizer may run at any moment

    @property
    def kept_bytes(self) -> int:
        """How many bytes wait to be lent again."""
        return sum(each.nbytes for each in self._kept)

    def lent(self, nbytes: int) -> Bytes:
        """So many bytes; they come back when the last view of them is gone."""
        whole = self._taken(nbytes)
        if whole is None:
            whole = np.empty(nbytes, np.uint8)
        loan = _Loan(whole)
        weakref.finalize(loan, self._give_back, whole)
        return np.asarray(loan)[:nbytes]

    def _taken(self, nbytes: int) -> Bytes | None:
        """The one that was kept last, if it fits."""
        with suppress(IndexError):
            whole = self._kept.pop()
            if nbytes <= whole.nbytes <= 2 * nbytes:
                return whole
        return None

    def _give_back(self, whole: Bytes) -> None:
        if self.kept_bytes + whole.nbytes <= self._bytes_max:
            self._kept.append(whole)


class _Loan:
    """What all views of lent memory hold on to."""

    def __init__(self, whole: Bytes) -> None:
        self.__array_interface__ = whole.__array_interface__


class Memory:
    """Room in memory: what is lent and read is the room itself."""

    in_memory = True

    def __init__(self, nbytes: int) -> None:
        self._bytes = _spare.lent(nbytes)

    def lend(self, start: int, stop: int) -> Bytes:
        return self._bytes[start:stop]

    def keep(self, start: int, piece: Bytes) -> None:
        assert np.may_share_memory(piece, self._bytes), "kept is what was lent"

    def read(self, start: int, stop: int) -> Bytes:
        return self._bytes[start:stop]

    def look(self, start: int, stop: int) -> memoryview:
        return self._bytes[start:stop].data.toreadonly()


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

    def look(self, start: int, stop: int) -> memoryview:
        before = start % mmap.ALLOCATIONGRANULARITY
        with self._troubles():
            mapping = mmap.mmap(
                self._descriptor,
                before + stop - start,
                access=mmap.ACCESS_READ,
                offset=start - before,
            )
        return memoryview(mapping)[before:]

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


_spare = Spare(KEPT_BYTES_MAX)


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "this machine"
