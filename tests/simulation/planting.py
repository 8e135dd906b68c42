"""How a fault is planted into production code while a test runs, and taken back after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from decodiloco.syncer.machine import TRANSITIONS

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
    """The machines with this fault in them; what the fold's table holds is replaced there, too."""
    table = dict(TRANSITIONS)
    held: list[Change] = []
    try:
        for place, name, other in bug.changes():
            right = getattr(place, name)
            held.append((place, name, right))
            setattr(place, name, other)
            TRANSITIONS.update({kind: other for kind, how in table.items() if how is right})
        yield
    finally:
        TRANSITIONS.update(table)
        for place, name, before in reversed(held):
            setattr(place, name, before)
