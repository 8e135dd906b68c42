"""Faults put into the production machines on purpose, each to be caught by a named invariant.

A checker that no planted fault can trip checks nothing. Each is a handful of replacements, made
while a test runs and taken back after it.
"""

from __future__ import annotations

from tests.simulation import (
    planted_in_gates,
    planted_in_mergers,
    planted_in_records,
    planted_in_rounds,
    planted_in_sweeps,
    planted_in_words,
)
from tests.simulation.planting import Bug, planted

__all__ = ["BUGS", "Bug", "planted"]

BUGS: dict[str, Bug] = {
    **planted_in_rounds.BUGS,
    **planted_in_words.BUGS,
    **planted_in_records.BUGS,
    **planted_in_gates.BUGS,
    **planted_in_sweeps.BUGS,
    **planted_in_mergers.BUGS,
}
