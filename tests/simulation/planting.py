"""How a fault is planted into production code while a test runs, and taken back after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Change = tuple[Any, str, Any]


@dataclass(frozen=True)
class Bug:
    """What is wrong, what is replaced by what, and who must notice within so many seeds."""

    says: str
    invariant: str
    changes: Callable[[], list[Change]]
    seeds_max: int = 3
    first_seed: int = 1
    plain_fold: bool = True  # whether the second fold looks on; it sees most things first


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The machines with this fault in them."""
    held: list[Change] = []
    try:
        for place, name, other in bug.changes():
            held.append((place, name, getattr(place, name)))
            setattr(place, name, other)
        yield
    finally:
        for place, name, before in reversed(held):
            setattr(place, name, before)
