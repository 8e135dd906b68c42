"""How long rounds wait: pace, overlap and the grace window (paper section 3.2, Eq. 3).

All durations are in seconds and come from facts; nothing here reads a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from decodiloco.syncer.state import State


@dataclass(frozen=True, slots=True)
class Pace:
    """The durations that decide when the next round opens and how long its window lasts.

    `step`, `upload`, `fetch`: of the live learners; `quorum`: from the opening to the K-th
    offer; `overlap`: rounds that may be open and unmerged.
    """

    pace_seconds: float
    step_seconds: float
    upload_seconds: float
    fetch_seconds: float
    quorum_seconds: float
    merge_seconds: float
    overlap: int
    grace_seconds: float
    window_seconds: float


def average(old: float | None, new: float) -> float:
    """Exponential moving average of factor 0.5; the first value is taken as it is."""
    return new if old is None else 0.5 * old + 0.5 * new


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie, between neighbours by line."""
    assert values and 0 <= share <= 1
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    if low == len(ordered) - 1:
        return ordered[low]
    return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])


def pace_of(state: State) -> Pace:
    """What the facts so far say about durations, and what follows for the next round.

    slack = overlap * pace - (quorum + merge + fetch)                  (Eq. 3)
    grace = min(gamma * slack, one step), never below zero
    window = max(quorum + grace, step + 1.1 * upload): a healthy learner can always answer
    """
    config = state.config
    live = state.live
    step = _of(
        [learner.step_seconds for learner in live],
        config.window.pace_quantile,
        config.window.step_seconds,
    )
    upload = _of([learner.upload_seconds for learner in live], 0.5, config.window.upload_seconds)
    fetch = _of([learner.fetch_seconds for learner in live], 0.5, upload)
    quorum = state.timings.quorum_seconds
    quorum = step + upload if quorum is None else quorum
    merge = state.timings.merge_seconds or 0.0
    pace = config.inner_steps / config.fragments * step
    overlap = _overlap(state, quorum + merge + fetch + step, pace)
    slack = overlap * pace - (quorum + merge + fetch)
    grace = max(0.0, min(config.window.gamma * slack, step))
    return Pace(
        pace_seconds=pace,
        step_seconds=step,
        upload_seconds=upload,
        fetch_seconds=fetch,
        quorum_seconds=quorum,
        merge_seconds=merge,
        overlap=overlap,
        grace_seconds=grace,
        window_seconds=max(quorum + grace, step + 1.1 * upload),
    )


def _overlap(state: State, needed_seconds: float, pace_seconds: float) -> int:
    """The configured overlap, or the least that leaves one step of slack, at most P - 1."""
    most = max(1, state.config.fragments - 1)
    if state.config.window.overlap != "auto":
        return min(state.config.window.overlap, state.config.fragments)
    if needed_seconds >= most * pace_seconds:  # also where the pace is next to nothing
        return most
    return max(1, math.ceil(needed_seconds / pace_seconds))


def _of(values: list[float | None], share: float, first: float) -> float:
    known = [value for value in values if value is not None and value > 0]
    return quantile(known, share) if known else first
