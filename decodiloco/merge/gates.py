"""The byte gates: what a stored delta must be to go into a merge. Reads headers and sums only.

A gate answers with None, or with the reason for which the offer is left out. A reason begins with
words that stay the same, since learners act on `not finite`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from decodiloco.fragments.layout import Tensor
from decodiloco.merge.direction import Agreement
from decodiloco.merge.rules import NORM_MAX
from streams.printing import printable

REASON_MAX = 200

NOT_FINITE = "not finite"
MISSING = "missing"
UNREACHABLE = "unreachable"
CORRUPT = "corrupt"
DIRECTION = "direction"
EXTREME_NORM = "extreme norm"

OF_THE_STORE = (MISSING, UNREACHABLE, CORRUPT)
"""Reasons that tell what the store gave, and nothing of who offered."""


class Described(Protocol):
    """What a header tells of a delta."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def squares(self, name: str) -> float | None: ...


def check_codec(codec: str, wanted: str) -> str | None:
    """A delta comes in the codec of the run."""
    return None if codec == wanted else reason("wrong codec", f"{codec}, not {wanted}")


def check_header(delta: Described, tensors: Sequence[Tensor]) -> str | None:
    """A delta has the fragment's tensors, in their shapes, with norms that can be."""
    wanted = tuple(tensor.name for tensor in tensors)
    if delta.names != wanted:
        return reason("wrong tensors", _difference(delta.names, wanted))
    for tensor in tensors:
        shape = delta.shape(tensor.name)
        if shape != tensor.shape:
            return reason("wrong shape", f"{tensor.name} {shape}, not {tensor.shape}")
        squares = delta.squares(tensor.name)
        if squares is None:
            return reason("no sums of squares", "the header carries none")
        if not math.isfinite(squares):
            return reason(NOT_FINITE, tensor.name)
        if not 0.0 <= squares <= NORM_MAX**2:
            return reason("norm out of bounds", f"{tensor.name} {squares:.3g}")
    return None


def check_squares(name: str, said: float, found: float) -> str | None:
    """The header has told the truth about a tensor's elements."""
    if not math.isfinite(found):
        return reason(NOT_FINITE, name)
    if said != found:
        return reason("lying header", f"{name}: sum of squares {said.hex()}, found {found.hex()}")
    return None


def check_norm(step_norm: float, middle: float, extreme: float) -> str | None:
    """A delta's norm a step is no longer than so many times the middle one (zero: none known)."""
    if middle == 0.0 or step_norm <= extreme * middle:
        return None
    return reason(EXTREME_NORM, f"{step_norm:.3g} a step; the median is {middle:.3g}")


def misdirected(one: Agreement) -> str:
    """Why a delta is left out that points elsewhere than the others."""
    return reason(DIRECTION, f"cosine {one.own:.3f} with the others, {one.rest:.3f} among them")


def reason(kind: str, detail: str = "") -> str:
    """A reason as it goes into a fact: ASCII that prints, for a stranger's names may be in it."""
    told = printable(f"{kind}: {detail}" if detail else kind)
    return told.encode("ascii", "backslashreplace").decode()[:REASON_MAX]


def _difference(names: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    strange = sorted(set(names) - set(wanted))
    absent = sorted(set(wanted) - set(names))
    if strange:
        return f"{strange[0]} is not of this fragment"
    return f"{absent[0]} is not there" if absent else "not sorted by name"
