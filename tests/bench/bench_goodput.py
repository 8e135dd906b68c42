"""How fast millions of chips are simulated: failures a second, and days of a cluster a second."""

from __future__ import annotations

from collections.abc import Iterator

from replay.goodput.settings import DAY_SECONDS
from replay.goodput.study import rounds_of
from tests.bench.figures import Figure, rate_of
from tests.goodput_lives import outcome, scenario

DAYS = 28


def figures(quick: bool) -> Iterator[Figure]:
    """28 days of 2.4 million chips (quick: 7), and rounds on top for a quarter of a day."""
    days = DAYS // 4 if quick else DAYS
    told = scenario("cluster.chips=2400000")
    failures = outcome(told, days * DAY_SECONDS).failures
    yield rate_of(
        f"goodput: 2.4 M chips, {days} days", "failures/s", failures,
        lambda: outcome(told, days * DAY_SECONDS),
    )  # fmt: skip
    merges = rounds_of(told, 0.25, 0).merges
    yield rate_of(
        "goodput: rounds of 8 learners", "merges/s", merges, lambda: rounds_of(told, 0.25, 0)
    )
