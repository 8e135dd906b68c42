"""The paper's table 1 as a picture: our lines, its points. SVG and HTML by hand, PNG by matplotlib.

The HTML file needs nothing from elsewhere and can be opened without a network. matplotlib is the
optional extra `plots`, loaded only when a PNG is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from decodiloco.errors import ConfigInvalid
from replay.errors import Unwritable
from replay.goodput.paper import CHIPS, TABLE_1, Row
from replay.goodput.study import Cell

COLOURS = ("#b2182b", "#ef8a62", "#8073ac", "#5aae61", "#2166ac", "#01665e")
PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 420, 320, 48
PANELS = ("goodput", "uptime")


def write_plot(path: Path, cells: Sequence[Cell]) -> None:
    """Writes PNG, SVG or HTML by the name's ending; cells may be of both clocks."""
    clocks: dict[str, list[Cell]] = {}
    for cell in cells:
        clocks.setdefault(cell.clock, []).append(cell)
    kind = path.suffix.lower()
    try:
        if kind == ".png":
            _png(path, clocks)
        elif kind == ".svg":
            path.write_text(svg_of(next(iter(clocks.values()))), encoding="utf-8")
        elif kind in (".html", ".htm"):
            path.write_text(html_of(clocks), encoding="utf-8")
        else:
            raise ConfigInvalid(f"--plot {path}: a plot is a .html, .svg or .png file")
    except OSError as error:
        raise Unwritable(f"{path}: {error.strerror or error}") from None


def html_of(clocks: dict[str, list[Cell]]) -> str:
    """A page with a picture and a table of numbers for each clock."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Goodput</title>",
        "<style>body{font:14px sans-serif;margin:2em;max-width:60em}td,th{padding:2px 10px;"
        "text-align:right}th:first-child,td:first-child{text-align:left}</style>",
        "<h1>Goodput and uptime by number of chips</h1>",
        "<p>Lines: simulated. Rings: table 1 of arXiv 2604.21428v1. Percent of all chip time.</p>",
    ]
    for clock, cells in clocks.items():
        parts += [f"<h2>Failures by the {escape(clock)} clock</h2>", svg_of(cells)]
        parts += [_html_table(cells, what) for what in PANELS]
    return "\n".join([*parts, "</html>"]) + "\n"


def svg_of(cells: Sequence[Cell]) -> str:
    """Two panels, goodput and uptime, over chips on a logarithmic scale."""
    width = 2 * (PANEL_WIDTH + MARGIN) + 170
    height = PANEL_HEIGHT + 2 * MARGIN
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='12'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
    ]
    for index, what in enumerate(PANELS):
        left = MARGIN + index * (PANEL_WIDTH + MARGIN)
        lines += _axes(left, what)
        for row, colour in zip(TABLE_1, COLOURS, strict=True):
            lines += _line(left, row, colour, _values(cells, row, what), _theirs(row, what))
    legend = 2 * (PANEL_WIDTH + MARGIN) + 12
    for index, (row, colour) in enumerate(zip(TABLE_1, COLOURS, strict=True)):
        y = MARGIN + 20 + 20 * index
        lines.append(f"<rect x='{legend}' y='{y - 6}' width='16' height='3' fill='{colour}'/>")
        lines.append(f"<text x='{legend + 22}' y='{y}'>{escape(row.name)}</text>")
    return "\n".join([*lines, "</svg>"])


def _axes(left: float, what: str) -> Iterator[str]:
    top, bottom = MARGIN, MARGIN + PANEL_HEIGHT
    yield f"<text x='{left}' y='{top - 14}' font-weight='bold'>{what}, %</text>"
    for percent in range(0, 101, 20):
        y = round(_y(percent), 1)
        yield f"<line x1='{left}' y1='{y}' x2='{left + PANEL_WIDTH}' y2='{y}' stroke='#ddd'/>"
        yield f"<text x='{left - 6}' y='{y + 4}' text-anchor='end'>{percent}</text>"
    for chips in CHIPS:
        x = _x(left, chips)
        yield f"<text x='{x}' y='{bottom + 18}' text-anchor='middle'>{chips / 1e6:g} M</text>"
    middle = left + PANEL_WIDTH / 2
    yield f"<text x='{middle}' y='{bottom + 38}' text-anchor='middle'>chips</text>"


def _line(
    left: float, row: Row, colour: str, ours: Sequence[float], theirs: Sequence[int]
) -> Iterator[str]:
    points = [(_x(left, chips), _y(value)) for chips, value in zip(CHIPS, ours, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = "" if row.elastic else " stroke-dasharray='5 3'"
    yield f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dashes}/>"
    for chips, value in zip(CHIPS, theirs, strict=True):
        x, y = _x(left, chips), _y(value)
        yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='none' stroke='{colour}'/>"


def _html_table(cells: Sequence[Cell], what: str) -> str:
    heads = "".join(f"<th>{chips / 1e6:g} M</th>" for chips in CHIPS)
    rows = [f"<tr><th>{what}, ours (paper)</th>{heads}</tr>"]
    for row in TABLE_1:
        pairs = zip(_values(cells, row, what), _theirs(row, what), strict=True)
        told = "".join(f"<td>{mine:.1f} ({other})</td>" for mine, other in pairs)
        rows.append(f"<tr><td>{escape(row.name)}</td>{told}</tr>")
    return "<table>" + "\n".join(rows) + "</table>"


def _png(path: Path, clocks: dict[str, list[Cell]]) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigInvalid(
            f"--plot {path}: a PNG needs matplotlib, the extra `plots` "
            "(pip install 'decodiloco[plots]'); .html and .svg need nothing"
        ) from None
    figure = Figure(figsize=(12.5, 4.2 * len(clocks)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(clocks), len(PANELS), squeeze=False)
    for line, (clock, cells) in zip(axes, clocks.items(), strict=True):
        for axis, what in zip(line, PANELS, strict=True):
            for row, colour in zip(TABLE_1, COLOURS, strict=True):
                style = "-" if row.elastic else "--"
                ours = _values(cells, row, what)
                axis.plot(CHIPS, ours, style, color=colour, label=row.name)
                axis.plot(CHIPS, _theirs(row, what), "o", mfc="none", color=colour, clip_on=False)
            axis.set_xscale("log")
            axis.set_xticks(CHIPS, [f"{chips / 1e6:g} M" for chips in CHIPS])
            axis.minorticks_off()
            axis.set_ylim(0, 102)
            axis.set_axisbelow(True)
            axis.grid(axis="y", color="#dddddd")
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_title(f"{what}, %: failures by the {clock} clock", loc="left")
    for axis in axes[-1]:
        axis.set_xlabel("chips (lines: simulated; rings: the paper)")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _values(cells: Sequence[Cell], row: Row, what: str) -> list[float]:
    told = {(one.learners, one.elastic, one.chips): one for one in cells}
    found = [told[row.learners, row.elastic, chips] for chips in CHIPS]
    return [one.goodput if what == "goodput" else one.uptime for one in found]


def _theirs(row: Row, what: str) -> Sequence[int]:
    return row.goodput if what == "goodput" else row.uptime


def _x(left: float, chips: int) -> float:
    share = math.log(chips / CHIPS[0]) / math.log(CHIPS[-1] / CHIPS[0])
    return left + 20 + share * (PANEL_WIDTH - 40)


def _y(percent: float) -> float:
    return MARGIN + PANEL_HEIGHT * (1 - percent / 100)
