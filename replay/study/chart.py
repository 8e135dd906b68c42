"""A small chart as SVG: lines with error bars over a numeric axis. Pure text, no library.

The same values give the same bytes, so that a test can hold a picture against its results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#b2182b", "#2166ac", "#5aae61", "#8073ac", "#ef8a62", "#01665e", "#636363")
WIDTH, HEIGHT = 460, 300
LEFT, TOP, BOTTOM, LEGEND = 58, 34, 46, 168
TICKS_MAX = 6


@dataclass(frozen=True, slots=True)
class Point:
    """x and y as numbers, and how far the error bar reaches up and down (0: none)."""

    x: float
    y: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """A named line."""

    name: str
    points: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn. `ticks`: places on the x axis and what stands there."""

    title: str
    x_label: str
    y_label: str
    ticks: tuple[tuple[float, str], ...]
    series: tuple[Series, ...]


def svg_of(chart: Chart) -> str:
    """The chart as a file's text."""
    width, height = LEFT + WIDTH + LEGEND, TOP + HEIGHT + BOTTOM
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='12'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        f"<text x='{LEFT}' y='20' font-weight='bold'>{escape(chart.title)}</text>",
        *_Drawing(chart).lines(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def round_steps(low: float, high: float) -> list[float]:
    """A few round numbers from below `low` to above `high`, at even distances."""
    span = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(span / TICKS_MAX))
    step = next(size * k for k in (1, 2, 5, 10, 20) if span / (size * k) <= TICKS_MAX - 1)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


class _Drawing:
    """Where things are; everything is drawn in the order in which it is told."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        points = [point for series in chart.series for point in series.points]
        assert points and chart.ticks
        self._xs = [place for place, _ in chart.ticks]
        self._ys = round_steps(
            min(point.y - point.error for point in points),
            max(point.y + point.error for point in points),
        )

    def lines(self) -> Iterator[str]:
        """The axes, then each series with its name."""
        yield from self._axes()
        for number, series in enumerate(self._chart.series):
            yield from self._series(number, series, COLOURS[number % len(COLOURS)])

    def _axes(self) -> Iterator[str]:
        right, bottom = LEFT + WIDTH, TOP + HEIGHT
        for value in self._ys:
            y = self._y(value)
            yield f"<line x1='{LEFT}' y1='{y}' x2='{right}' y2='{y}' stroke='#ddd'/>"
            yield f"<text x='{LEFT - 6}' y='{y}' dy='4' text-anchor='end'>{value:g}</text>"
        for place, label in self._chart.ticks:
            x = self._x(place)
            yield f"<line x1='{x}' y1='{bottom}' x2='{x}' y2='{bottom + 4}' stroke='#888'/>"
            yield f"<text x='{x}' y='{bottom + 18}' text-anchor='middle'>{escape(label)}</text>"
        middle, below = LEFT + WIDTH / 2, escape(self._chart.x_label)
        yield f"<text x='{middle}' y='{bottom + 38}' text-anchor='middle'>{below}</text>"
        yield (
            f"<text x='14' y='{TOP + HEIGHT / 2}' text-anchor='middle' "
            f"transform='rotate(-90 14 {TOP + HEIGHT / 2})'>{escape(self._chart.y_label)}</text>"
        )

    def _series(self, number: int, series: Series, colour: str) -> Iterator[str]:
        path = " ".join(f"{self._x(point.x)},{self._y(point.y)}" for point in series.points)
        dashes = " stroke-dasharray='5 3'" if series.dashed else ""
        yield f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dashes}/>"
        for point in series.points:
            x = self._x(point.x)
            if point.error:
                low, high = self._y(point.y - point.error), self._y(point.y + point.error)
                yield f"<line x1='{x}' y1='{low}' x2='{x}' y2='{high}' stroke='{colour}'/>"
            yield f"<circle cx='{x}' cy='{self._y(point.y)}' r='3' fill='{colour}'/>"
        left, y = LEFT + WIDTH + 14, TOP + 10 + 20 * number
        ends = f"x1='{left}' y1='{y}' x2='{left + 18}' y2='{y}'"
        yield f"<line {ends} stroke='{colour}' stroke-width='2'{dashes}/>"
        yield f"<text x='{left + 24}' y='{y + 4}'>{escape(series.name)}</text>"

    def _x(self, value: float) -> float:
        low, high = min(self._xs), max(self._xs)
        return round(LEFT + 20 + (WIDTH - 40) * (value - low) / max(high - low, 1e-9), 1)

    def _y(self, value: float) -> float:
        low, high = self._ys[0], self._ys[-1]
        return round(TOP + HEIGHT * (1 - (value - low) / max(high - low, 1e-9)), 1)


def even_ticks(labels: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Labels at 0, 1, 2 ...: for values that are no scale, or a doubling one."""
    return tuple((float(place), label) for place, label in enumerate(labels))
