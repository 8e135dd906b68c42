"""The numbers of error feedback: what coding lost of a delta, kept, and added to a later one.

A residual is coded itself, in the run's codec, so that it takes little memory and little of a
checkpoint. Knows tensors, fragments and steps; which residual is whose is told by
`decodiloco.learner.residuals`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from decodiloco.errors import BlobCorrupt
from decodiloco.fragments.layout import Layout
from decodiloco.learner.state import Residual
from decodiloco.store.codecs import coded_bytes, decode, encode
from decodiloco.store.tensors import Encoded, encode_with_loss

Coded = Mapping[str, bytes]  # a residual: the coded elements of each tensor

Arrays = Mapping[str, npt.NDArray[np.float32]]
RESIDUAL = "residual/"  # before the names of residuals in a checkpoint


def with_residuals(delta: Arrays, residuals: Sequence[Coded], codec: str) -> Arrays:
    """x = delta + residuals, added in their order, in float32."""
    with np.errstate(all="ignore"):  # what is not finite is judged by the merge, and recorded
        return {name: _with(array, name, residuals, codec) for name, array in delta.items()}


def encode_keeping(whole: Arrays, codec: str) -> tuple[Encoded, Coded]:
    """The blob of x, and its residual.

    With C the coding of the run, the blob holds C(x), and the residual is C(x - C(x)): the second
    coding loses about a fifteenth of it with int4, and less with others.
    """
    encoded, lost = encode_with_loss(whole, codec)
    return encoded, {name: encode(array, codec) for name, array in lost.items()}


class Kept:
    """Residuals of one life, by the fragment and the learner step of their offers."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Coded] = {}

    def put(self, fragment: int, learner_step: int, residual: Coded) -> None:
        """Keeps the residual of an offer from now on."""
        self._kept[fragment, learner_step] = residual

    def of(self, residuals: Sequence[Residual]) -> tuple[Coded, ...]:
        """These, in their order."""
        return tuple(self._kept[one.fragment, one.learner_step] for one in residuals)

    def keep(self, steps: Sequence[Collection[int]]) -> None:
        """Lets go of those of all other steps; `steps` are given for each fragment."""
        self._kept = {
            (fragment, step): residual
            for (fragment, step), residual in self._kept.items()
            if step in steps[fragment]
        }


def to_arrays(held: Mapping[int, Coded]) -> dict[str, npt.NDArray[np.uint8]]:
    """Residuals, by the positions of their offers, as arrays of a checkpoint."""
    return {
        f"{RESIDUAL}{position}/{name}": np.frombuffer(payload, np.uint8)
        for position, residual in held.items()
        for name, payload in residual.items()
    }


def from_arrays(
    arrays: Mapping[str, npt.NDArray[Any]], wanted: Sequence[Residual], layout: Layout, codec: str
) -> dict[int, Coded]:
    """The wanted residuals in a checkpoint's arrays, by position.

    Raises BlobCorrupt where one is not there or is none of its fragment.
    """
    found: dict[int, Coded] = {}
    for one in wanted:
        residual = {}
        for tensor in layout.of(one.fragment):
            place = f"{RESIDUAL}{one.position}/{tensor.name}"
            payload = arrays[place].tobytes() if place in arrays else b""
            if not _is_sound(payload, codec, tensor.elements):
                raise BlobCorrupt(f"a checkpoint without a sound {place}")
            residual[tensor.name] = payload
        found[one.position] = residual
    return found


def _with(
    array: npt.NDArray[np.float32], name: str, residuals: Sequence[Coded], codec: str
) -> npt.NDArray[np.float32]:
    for residual in residuals:
        array = array + decode(residual[name], codec, array.size).reshape(array.shape)
    return array


def _is_sound(payload: bytes, codec: str, elements: int) -> bool:
    if len(payload) != coded_bytes(elements, codec):
        return False
    try:
        return bool(np.isfinite(decode(payload, codec, elements)).all())
    except ValueError:
        return False
