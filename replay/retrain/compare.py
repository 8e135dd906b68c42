"""How what was trained again compares with the tape: fingerprints and distances. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decodiloco.merge.exact import square_sum

Arrays = Mapping[str, npt.NDArray[np.float32]]

LABELS = ("machine", "system")


@dataclass(frozen=True, slots=True)
class Distance:
    """How far one delta lies from another: |ours - theirs| / |theirs|, and their cosine."""

    relative: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that came out otherwise than the tape says."""

    position: int
    what: str
    learner: str = ""
    learner_step: int | None = None
    fragment: int | None = None


def distance(ours: Arrays, theirs: Arrays) -> Distance:
    """The distance of two deltas of one fragment, in float64 over all their tensors."""
    gap = squares_ours = squares_theirs = product = 0.0
    for name, their in theirs.items():
        our = ours[name]
        with np.errstate(all="ignore"):
            gap += square_sum((our - their).reshape(-1))
            product += float(np.dot(our.reshape(-1).astype(np.float64), their.reshape(-1)))
        squares_ours += square_sum(our.reshape(-1))
        squares_theirs += square_sum(their.reshape(-1))
    size = math.sqrt(squares_theirs)
    both = math.sqrt(squares_ours) * size
    return Distance(
        math.sqrt(gap) / size if size else math.inf if gap else 0.0,
        product / both if both else float("nan"),
    )


def fields_of(fingerprint: str) -> dict[str, str]:
    """A fingerprint's fields by name: the first two stand alone, the others begin with theirs."""
    fields: dict[str, str] = {}
    for place, part in enumerate(fingerprint.split(", ")):
        name, _, value = part.partition(" ")
        if place < len(LABELS):
            name, value = LABELS[place], part
        fields[name] = value
    return fields


def differences(ours: str, theirs: str) -> tuple[str, ...]:
    """The fields in which two fingerprints part, such as "torch 2.8.0 there, 2.9.1 here"."""
    here, there = fields_of(ours), fields_of(theirs)
    return tuple(
        f"{name} {there.get(name, 'unknown')} there, {here.get(name, 'unknown')} here"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    )


def threads_of(fingerprint: str) -> int | None:
    """How many threads a fingerprint was taken with; None where it does not say."""
    told = fields_of(fingerprint).get("threads", "")
    return int(told) if told.isdecimal() and 1 <= int(told) <= 1024 else None
