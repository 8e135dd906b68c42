"""Where the elements of one tensor go, and from where they come, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats

Scalar = TypeVar("Scalar", np.float32, np.uint16)


class Place(Protocol):
    """Where a tensor's elements go, piece by piece: memory, or something that holds more."""

    elements: int

    def lend(self, start: int, stop: int) -> Floats:
        """Where these elements may be written; they count once they are kept."""

    def keep(self, start: int, piece: Floats) -> None:
        """Keeps what was lent, or was kept before, from `start` on, as it is now."""

    def kept(self, start: int, stop: int) -> Floats:
        """What was kept there. It may be written to, and kept or settled again."""

    def settle(self, start: int, piece: Floats) -> None:
        """Keeps it for the last time."""


class Whole:
    """An array as a place: what is written to its parts is kept."""

    def __init__(self, array: Floats) -> None:
        self._array = array
        self.elements = len(array)

    def lend(self, start: int, stop: int) -> Floats:
        return self._array[start:stop]

    def keep(self, start: int, piece: Floats) -> None:
        """Done: `piece` is a part of the array."""

    def kept(self, start: int, stop: int) -> Floats:
        return self._array[start:stop]

    def settle(self, start: int, piece: Floats) -> None:
        """Done, too."""


def put(flat: Floats, out: Place) -> None:
    """Keeps a whole array in a place."""
    for start in range(0, len(flat), CHUNK_ELEMENTS):
        piece = out.lend(start, min(start + CHUNK_ELEMENTS, len(flat)))
        piece[...] = flat[start : start + CHUNK_ELEMENTS]
        out.keep(start, piece)


def pieces(flat: npt.NDArray[Scalar]) -> Iterator[npt.NDArray[Scalar]]:
    """An array in pieces, as the streams give them."""
    for start in range(0, len(flat), CHUNK_ELEMENTS):
        yield flat[start : start + CHUNK_ELEMENTS]
