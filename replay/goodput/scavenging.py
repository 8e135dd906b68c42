"""Learners that come and go: time to a token budget with extra capacity that is there at times.

A base of B learners is always there; an availability says how many more there are and when.
Decoupled learners join while the others train; data parallelism stops for each change of size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from decodiloco.local.availability import Availability

BUDGET_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Scavenged:
    """What it took: time relative to the base alone, and the learner time by class (sum 1)."""

    relative_time: float
    shares: dict[str, float]
    changes: int


def by_work(base: float, extra: float, period_seconds: float) -> Availability:
    """Extra capacity during half of the work: the paper's day and night (section 5.3).

    Without extra the base does half the work of a period in half of `period_seconds`; with it the
    other half takes B/(B + extra) of that.
    """
    half = period_seconds / 2.0
    return Availability(((half, 0.0), (half * base / (base + extra), extra)))


def by_clock(extra: float, period_seconds: float, share: float) -> Availability:
    """Extra capacity during this share of each period, at its end."""
    return Availability(((period_seconds * (1 - share), 0.0), (period_seconds * share, extra)))


def ideal_by_work(base: float, extra: float) -> float:
    """0.5 + 0.5/(1 + s), s = extra/base: what the paper's table 4 shows for its own method."""
    return 0.5 + 0.5 / (1.0 + extra / base)


def ideal_by_clock(base: float, extra: float, share: float) -> float:
    """1/(1 + f s): the mean capacity over a period."""
    return 1.0 / (1.0 + share * extra / base)


def decoupled(
    base: float, availability: Availability, budget_seconds: float, join_seconds: float
) -> Scavenged:
    """Time until the work that the base alone does in `budget_seconds` is done.

    A newcomer fetches state from a peer and trains after `join_seconds`; nobody else stops.
    When some leave, those that came last leave first.
    """
    budget = base * budget_seconds
    now = done = joining = 0.0
    changes = 0
    present: list[tuple[float, float]] = []  # (trains from, learners), oldest first
    for length, learners in availability.forever():
        there = sum(count for _, count in present)
        if learners != there:
            changes += 1
        if learners > there:
            present.append((now + join_seconds, learners - there))
        else:
            _leave(present, there - learners)
        end = now + length
        for begin, stop in _pieces(now, end, present):
            ready = base + sum(count for moment, count in present if moment <= begin)
            all_there = base + sum(count for _, count in present)
            if done + ready * (stop - begin) >= budget:
                stop = begin + (budget - done) / ready
                joining += (all_there - ready) * (stop - begin)
                return _told(stop, budget, budget_seconds, changes, {"joining": joining})
            done += ready * (stop - begin)
            joining += (all_there - ready) * (stop - begin)
        now = end
    raise AssertionError("an availability never ends")


def data_parallel(
    base: float,
    availability: Availability,
    budget_seconds: float,
    resize_seconds: float,
    extended_step: float = 1.0,
) -> Scavenged:
    """The same for one job that stops for `resize_seconds` whenever its size changes.

    While the extra learners are there, each step takes `extended_step` times as long: what the
    all-reduce to them costs.
    """
    budget = base * budget_seconds
    now = done = resizing = slower = owed = there = 0.0
    changes = 0
    while True:
        done_before, changes_before = done, changes
        for length, learners in availability.spans:
            if learners != there:
                changes, owed, there = changes + 1, resize_seconds, learners
            size = base + there
            rate = size / (extended_step if there else 1.0)
            stopped = min(owed, length)
            owed -= stopped
            trained = min(length - stopped, (budget - done) / rate)
            done += rate * trained
            resizing += size * stopped
            slower += (size - rate) * trained
            now += stopped + trained
            told = {"resizing": resizing, "slower": slower}
            if done >= budget - BUDGET_ROUNDING * budget:
                return _told(now, budget, budget_seconds, changes, told)
            now += length - stopped - trained
        if done == done_before and changes > changes_before:  # it does nothing but resize
            return _told(math.inf, budget, budget_seconds, changes, told)


def _told(
    now: float, budget: float, budget_seconds: float, changes: int, badput: dict[str, float]
) -> Scavenged:
    total = budget + math.fsum(badput.values())
    shares = {"useful": budget / total, **{kind: spent / total for kind, spent in badput.items()}}
    return Scavenged(now / budget_seconds, shares, changes)


def _leave(present: list[tuple[float, float]], count: float) -> None:
    while count > 0.0 and present:
        moment, there = present.pop()
        if there > count:
            present.append((moment, there - count))
        count -= there


def _pieces(
    begin: float, end: float, present: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """[begin, end) cut where somebody gets ready."""
    cuts = sorted(moment for moment, _ in present if begin < moment < end)
    edges = [begin, *cuts, end]
    yield from pairwise(edges)
