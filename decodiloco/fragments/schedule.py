"""In which order fragments are merged, how fast, and which rounds a learner must be ready for.

Rounds are numbered from 1. Durations are given, never measured here.
"""

from __future__ import annotations


def fragment_of(round_number: int, fragments: int) -> int:
    """The fragment that a round belongs to: the order is 0, 1, ... P - 1, over and over."""
    assert round_number >= 1 and fragments >= 1
    return (round_number - 1) % fragments


def pace_steps(inner_steps: int, fragments: int) -> float:
    """Steps of the pacing learner between two openings: H / P.

    A fragment then gets a version each H inner steps, whatever P is.
    """
    assert inner_steps >= 1 and fragments >= 1
    return inner_steps / fragments


def rounds_ahead(
    last_round: int,
    pace_seconds: float,
    since_seconds: float,
    step_seconds: float,
    fragments: int,
) -> range:
    """The rounds that may open before a learner's next boundary, `step_seconds` from now.

    The next one opens `pace_seconds` after the last, which opened `since_seconds` ago, and each
    further one a pace later. At most P, since a fragment has one round at a time.
    """
    assert last_round >= 0 and min(pace_seconds, since_seconds, step_seconds) >= 0
    opens_seconds = max(0.0, pace_seconds - since_seconds)
    count = 0
    while count < fragments and opens_seconds <= step_seconds:
        opens_seconds += pace_seconds
        count += 1
    return range(last_round + 1, last_round + 1 + count)
