"""What a quorum costs where learners do wait: a barrier of the K fastest every H steps.

The method of this project has no such barrier; the paper's K = M without grace window has one
(table 5), and it is the upper bound of what a larger quorum can cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay.goodput.learner import Lived
from replay.goodput.settings import Scenario
from replay.goodput.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Barred:
    """Shares of all allocated time: useful work, and work that could be done but waited."""

    goodput: float
    quorum_wait: float
    rounds: int


def barred(
    scenario: Scenario,
    lives: Sequence[Lived],
    until_seconds: float,
    uniforms: Iterator[float],
) -> Barred:
    """Runs the lives in rounds of H steps that end when the K-th fastest has done its own.

    Who has finished waits for that moment; who has not is cut there, and its work still counts
    (it is merged by its tokens and steps). A step takes 1 +- `jitter` of its time, drawn for each
    learner and round.
    """
    sync = scenario.sync
    timelines = [Timeline(life.stretches) for life in lives]
    lengths = [sync.inner_steps * scenario.step_seconds(m) for m in range(len(lives))]
    useful = waited = 0.0
    begin, rounds = 0.0, 0
    while begin < until_seconds:
        finishes = []
        for timeline, length in zip(timelines, lengths, strict=True):
            drawn = 1.0 + sync.jitter * (2.0 * next(uniforms) - 1.0) if sync.jitter else 1.0
            finishes.append(timeline.moment_of(timeline.stepped_until(begin) + length * drawn))
        end = min(sorted(finishes)[sync.quorum - 1], until_seconds)
        for timeline, finish in zip(timelines, finishes, strict=True):
            begun, ended = timeline.worked_until(begin), timeline.worked_until(end)
            done = ended if finish >= end else timeline.worked_until(finish)
            useful += done - begun
            waited += ended - done
        begin, rounds = end, rounds + 1
    total = until_seconds * len(lives)
    return Barred(useful / total, waited / total, rounds)
