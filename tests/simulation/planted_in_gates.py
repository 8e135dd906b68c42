"""Faults in what judges deltas and learners. See `planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decodiloco.merge import direction, gates
from decodiloco.syncer import machine, owed, standing
from decodiloco.syncer.state import State
from tests.simulation.planting import Bug, Change


def _gate_skipped() -> list[Change]:
    return [
        (direction, "odd_one_out", lambda found, limits, elements: None),
        (gates, "check_norm", lambda norm, middle, extreme: None),
    ]


def _strikes_not_reset() -> list[Change]:
    right = machine._joined

    def wrong(state: State, event: Any) -> State:
        before = state.learners.get(event.learner)
        state = right(state, event)
        marks = before.marks if before is not None else 0
        learner = replace(state.learners[event.learner], marks=marks)
        return replace(state, learners={**state.learners, event.learner: learner})

    return [(machine, "_joined", wrong)]


def _struck_too_early() -> list[Change]:
    return [(owed, "is_to_go", lambda state, learner: learner.marks >= standing.STRIKE)]


BUGS: dict[str, Bug] = {
    "gate skipped": Bug(
        "No delta is held against the others: whatever is finite is merged.",
        "merged from these bytes", _gate_skipped, 30,
    ),
    "strikes not reset": Bug(
        "A new life goes on with the marks of the last one.", "state as told",
        _strikes_not_reset, 30,
    ),
    "struck too early": Bug(
        "A learner is quarantined at its first strike.", "quarantined for strikes",
        _struck_too_early, 30,
    ),
}  # fmt: skip
