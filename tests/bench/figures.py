"""How a figure is taken and written: the best of several goes, with its unit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

GOES = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured rate."""

    name: str
    rate: float
    unit: str

    def __str__(self) -> str:
        return f"{self.name:<44} {self.rate:>14,.0f} {self.unit}"


def rate_of(name: str, unit: str, amount: float, work: Callable[[], object]) -> Figure:
    """`amount` per second of the fastest go: the others were disturbed."""
    return Figure(name, amount / min(_seconds(work) for _ in range(GOES)), unit)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
