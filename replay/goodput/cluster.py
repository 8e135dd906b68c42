"""All learners of a cluster side by side: goodput, uptime, and where the rest of the time went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from replay.goodput.learner import CLASSES, Lived, live
from replay.goodput.settings import Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """Shares of all allocated time, from 0 to 1.

    `shares` has every class of `CLASSES` and adds up to 1; `up_at_least[k]` is the share of time
    in which at least k learners step at once (k = 0 .. M).
    """

    shares: dict[str, float]
    up_at_least: tuple[float, ...]
    failures: int

    @property
    def goodput(self) -> float:
        """The share of chip time in steps that count."""
        return self.shares["useful"]

    @property
    def uptime(self) -> float:
        """The share of time in which at least one learner steps."""
        return self.up_at_least[1]


def lives_of(
    scenario: Scenario, until_seconds: float, streams: Sequence[Iterator[float]]
) -> list[Lived]:
    """The life of each learner, each from its own stream of draws."""
    assert len(streams) == scenario.cluster.learners
    return [
        live(scenario, learner, until_seconds, stream) for learner, stream in enumerate(streams)
    ]


def outcome_of(lives: Sequence[Lived], until_seconds: float) -> Outcome:
    """What the lives come to together; learners are of one size, so each counts the same."""
    total = until_seconds * len(lives)
    shares = {kind: sum(life.seconds[kind] for life in lives) / total for kind in CLASSES}
    assert abs(sum(shares.values()) - 1.0) < 1e-6, shares
    return Outcome(shares, _up_at_least(lives, until_seconds), sum(life.failures for life in lives))


def _up_at_least(lives: Sequence[Lived], until_seconds: float) -> tuple[float, ...]:
    """Sweeps over the ends of all stretches; an end comes before a beginning of the same time."""
    begins = np.concatenate([np.array(life.stretches.begins) for life in lives])
    ends = np.concatenate([np.array(life.stretches.ends) for life in lives])
    moments = np.concatenate([ends, begins])
    changes = np.concatenate([-np.ones(len(ends), int), np.ones(len(begins), int)])
    order = np.argsort(moments, kind="stable")
    up = np.cumsum(changes[order])[:-1]
    lengths = np.diff(moments[order])
    times = [float(lengths[up >= k].sum()) for k in range(1, len(lives) + 1)]
    return (1.0, *(min(1.0, seconds / until_seconds) for seconds in times))
