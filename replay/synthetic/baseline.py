"""Elastic data parallelism under the same failures: how many sequences each of its steps trains.

One job of all chips; its batch shrinks with lost slices, and it does not step while it
reconfigures (paper E.1). It trains a number of tokens, not for a time, as the learners do: what it
is slower shows in `seconds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from replay.goodput import draws
from replay.goodput.learner import live
from replay.goodput.settings import Scenario
from replay.synthetic.life import sequences_of
from replay.synthetic.schedule import under_failures, undisturbed

SLACK_STEPS = 200.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """The sequences of each inner step, in order, and the time that they take, in seconds."""

    sequences: tuple[int, ...]
    seconds: float


def data_parallel(
    scenario: Scenario,
    batch_sequences: int,
    sequences_total: int,
    seed: int,
    big_steps: float = 1.0,
    failing: bool = True,
) -> Baseline:
    """The steps of one job until so many sequences are trained; the last one is cut to fit.

    `batch_sequences` is the batch of all chips: of M learners' batches together, to compare. A
    scenario of several learners is taken as one job of all their chips.
    """
    assert batch_sequences >= 1 and sequences_total >= 1
    cluster = scenario.cluster
    one = scenario.with_cell(1, cluster.elastic, cluster.chips)
    step_seconds = one.step_seconds(0) * big_steps
    until = (1.5 * sequences_total / batch_sequences + SLACK_STEPS) * step_seconds
    while True:
        stream = draws.uniforms(seed, draws.LIFE, 0)
        schedule = under_failures(live(one, 0, until, stream)) if failing else undisturbed()
        steps: list[int] = []
        now, left = 0.0, sequences_total
        while left > 0 and now < math.inf:
            end = schedule.step_end(now, step_seconds)
            share = schedule.share_between(now, end) if end < math.inf else 0.0
            steps.append(min(left, sequences_of(batch_sequences, share)))
            left -= steps[-1]
            now = end
        if now < math.inf:
            return Baseline(tuple(steps), now)
        until *= 2.0
