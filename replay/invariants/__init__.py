"""What holds for every run: one list of invariants for worlds, live runs and `replay verify`."""

from replay.invariants.all_of_them import Invariants
from replay.invariants.rule import Invariant

__all__ = ["Invariant", "Invariants"]
