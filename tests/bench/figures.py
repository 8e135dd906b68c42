"""How a figure is taken and written: in goes that take turns, with its unit and its target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

GOES = 5

Clock = Callable[[], float]
Side = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should come to."""

    side: Side
    value: float

    def met_by(self, value: float) -> bool:
        return value >= self.value if self.side == "at least" else value <= self.value


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `detail` says of what it was made: the raw times behind a ratio, say."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.met_by(self.value)

    def __str__(self) -> str:
        told = f"{self.name:<58} {written(self.value):>10} {self.unit:<12}"
        if self.target is not None:
            mark = "met" if self.met else "MISSED"
            told += f" {self.target.side} {written(self.target.value)}: {mark}"
        return f"{told}  {self.detail}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """What a machine reads: the fields, and whether the target is met."""
        return asdict(self) | {"met": self.met}


def at_least(value: float) -> Target:
    return Target("at least", value)


def at_most(value: float) -> Target:
    return Target("at most", value)


def written(value: float) -> str:
    """A number with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def rate_of(
    name: str, unit: str, amount: float, work: Callable[[], object], target: Target | None = None
) -> Figure:
    """`amount` per second of the fastest go: the others were disturbed."""
    return Figure(name, amount / min(seconds_of(work) for _ in range(GOES)), unit, target)


def seconds_of(work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    begun = clock()
    work()
    return clock() - begun


def interleaved(
    works: Mapping[str, Callable[[], object]],
    goes: int = GOES,
    clock: Clock = time.perf_counter,
) -> dict[str, Times]:
    """The works' seconds, taken in turns after one go each that is not counted.

    What disturbs the machine for a while so disturbs all of them, and a ratio of two is sound.
    `time.process_time` is the better clock for works of one thread that wait for nothing: what
    else the machine does then hardly counts.
    """
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(goes):
        for name, work in works.items():
            taken[name].append(seconds_of(work, clock))
    return {name: Times(tuple(each)) for name, each in taken.items()}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one work's goes, in the order in which they were taken."""

    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.seconds)

    def over(self, other: Times) -> float:
        """The median over the goes of this work's time as a ratio of the other's."""
        return median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))
