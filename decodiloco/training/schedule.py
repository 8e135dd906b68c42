"""The inner learning rate as a pure function of the run's clock. Knows no optimizer.

The clock is the run's, not the learner's: a learner that joins late, or is slow, trains at the
rate that the run was at when the newest merge in its model was made.
"""

from __future__ import annotations

import math

from decodiloco.config import End, Run

RATE_FLOOR = 0.1  # share of the peak at both ends: the clock stands at 0 until the first merge
ENDLESS_WARMUP_VERSIONS = 4


def progress(end: End, step: int, tokens: int) -> float | None:
    """How much of the run is done, 0 to 1; None for a run without an end.

    With two ends, the nearer one counts, as it does for the run's end.
    """
    shares = []
    if end.steps is not None:
        shares.append(step / end.steps)
    if end.tokens is not None:
        shares.append(tokens / end.tokens)
    return min(1.0, max(shares)) if shares else None


def rate_share(done: float, warmup_share: float) -> float:
    """Share of the peak rate when `done` (0 to 1) of the run is done.

    Linear from 0.1 to 1 over `warmup_share`, then a half cosine down to 0.1.
    """
    assert 0 <= done <= 1
    if done < warmup_share:
        return RATE_FLOOR + (1 - RATE_FLOOR) * done / warmup_share
    if warmup_share == 1:
        return 1.0
    past = (done - warmup_share) / (1 - warmup_share)
    return RATE_FLOOR + (1 - RATE_FLOOR) * 0.5 * (1 + math.cos(math.pi * past))


def learning_rate(run: Run, step: int, tokens: int) -> float:
    """AdamW's learning rate at this step (merges) and these tokens of the run.

    A run without an end warms up over the first 4 versions of its fragments and then keeps its
    peak.
    """
    peak = run.training.lr
    done = progress(run.end, step, tokens)
    if done is not None:
        return peak * rate_share(done, run.training.warmup_share)
    warmed = min(1.0, step / (ENDLESS_WARMUP_VERSIONS * run.fragments))
    return peak * (RATE_FLOOR + (1 - RATE_FLOOR) * warmed)
