"""The pictures of the study's page, from results alone. Pure: text in SVG."""

from __future__ import annotations

from collections.abc import Sequence

from replay.study.cases import (
    ADOPTED,
    CHIPS,
    EXTRA_PERCENT,
    INNER_STEPS,
    LEARNERS,
    MOMENTA,
    RULES,
    SAME_TIME_PERCENT,
    TRANSFERS_STEPS,
    Case,
)
from replay.study.chart import Chart, Point, Series, even_ticks, svg_of
from replay.study.results import Result
from replay.study.summary import Summary, spread_of

LOSS = "held-out loss, nats per byte"


def figures_of(results: Sequence[Result]) -> dict[str, str]:
    """Each picture that has something to show, by the name of its file without ending."""
    summary = Summary(results)
    charts = {
        "learners": _learners(summary),
        "rules": _rules(summary),
        "adoption": _adoption(summary),
        "momentum": _momentum(summary),
        "scavenging": _scavenging(summary),
        "curves": _curves(summary),
    }
    return {
        name: svg_of(chart)
        for name, chart in charts.items()
        if any(series.points for series in chart.series)
    }


def _learners(summary: Summary) -> Chart:
    def named(chips: int) -> str:
        return f"{chips / 1e6:g} M chips" if chips else "no failures"

    lines = [
        (named(chips), [Case(learners=m, chips=chips) for m in (1, *LEARNERS)]) for chips in CHIPS
    ]
    ticks = even_ticks(["data parallel", *map(str, LEARNERS)])
    return Chart("Learners and failures", "learners", LOSS, ticks, _series(summary, lines))


def _rules(summary: Summary) -> Chart:
    lines = [
        (f"{rule}, embedding {embedding}", [
            Case(learners=m, rule=rule, embedding_rule=embedding) for m in (8, 16)
        ])
        for rule in RULES
        for embedding in RULES
    ]  # fmt: skip
    ticks = even_ticks(["8", "16"])
    return Chart("Merge rules", "learners", LOSS, ticks, _series(summary, lines))


def _adoption(summary: Summary) -> Chart:
    lines = [
        (kind, [Case(adopted=kind, transfer_steps=steps) for steps in TRANSFERS_STEPS])
        for kind in ADOPTED
    ]
    ticks = even_ticks([f"{steps:g}" for steps in TRANSFERS_STEPS])
    return Chart("Adoption", "steps of a transfer, each way", LOSS, ticks, _series(summary, lines))


def _momentum(summary: Summary) -> Chart:
    lines = [
        (f"momentum {mu:g}", [Case(momentum=mu, inner_steps=steps) for steps in INNER_STEPS])
        for mu in MOMENTA
    ]
    ticks = even_ticks([str(steps) for steps in INNER_STEPS])
    return Chart("Outer momentum against H", "H", LOSS, ticks, _series(summary, lines))


def _scavenging(summary: Summary) -> Chart:
    lines = [
        ("with the extra", [Case(extra_percent=percent) for percent in EXTRA_PERCENT]),
        ("4 alone, same time", [
            Case(steps_percent=SAME_TIME_PERCENT.get(percent, 100)) for percent in EXTRA_PERCENT
        ]),
    ]  # fmt: skip
    ticks = even_ticks([f"+{percent} %" for percent in EXTRA_PERCENT])
    return Chart("Scavenging", "extra learners, half of the work", LOSS, ticks,
                 _series(summary, lines))  # fmt: skip


def _curves(summary: Summary) -> Chart:
    """Mean loss along the run, once a fifth is trained, for each number of learners."""
    series = []
    for m in (1, *LEARNERS):
        results = summary.of(Case(learners=m))
        along: dict[float, list[float]] = {}
        for result in results:
            for done, loss in result.losses:
                along.setdefault(round(10 * done) / 10, []).append(loss)
        points = tuple(
            Point(done, spread_of(losses).mean)
            for done, losses in sorted(along.items())
            if done >= 0.2
        )
        if points:
            name = "data parallel" if m == 1 else f"{m} learners"
            series.append(Series(name, points, dashed=m == 1))
    ticks = tuple((tenth / 10, f"{10 * tenth} %") for tenth in (2, 4, 6, 8, 10))
    return Chart("Along the run, no failures", "tokens trained", LOSS, ticks, tuple(series))


def _series(summary: Summary, lines: Sequence[tuple[str, Sequence[Case]]]) -> tuple[Series, ...]:
    """A line for each list of cases, at 0, 1, 2 ...; bars are standard deviations over seeds."""
    found = []
    for name, cases in lines:
        points = []
        for place, case in enumerate(cases):
            if summary.has(case):
                spread = summary.spread(case)
                points.append(Point(float(place), spread.mean, spread.deviation or 0.0))
        if points:
            found.append(Series(name, tuple(points)))
    return tuple(found)
