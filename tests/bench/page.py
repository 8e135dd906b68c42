"""docs/explanation/performance.md filled from one run of all rooms. No figure is copied by hand.

python -m tests.bench.page [bench.json]
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.study.chart import Chart, Point, Series, even_ticks, svg_of
from replay.study.page import filled
from tests.bench.figures import written
from tests.bench.growth_page import machine_told, row, table
from tests.tidy.house import ROOT

PAGE = ROOT / "docs" / "explanation" / "performance.md"
TAKEN = PAGE.with_suffix("") / "bench.json"

ASPECTS = {"of torch": "torch", "of reading": "reading"}
ALSO = {"memory": "stream"}  # told in the table of another room
COLUMNS = tuple((codec, threads) for codec in ("bf16", "fp32") for threads in (1, 2))
DRAWN_MILLIONS = 8
_CASE = re.compile(r"merge: (\w+) (\w+) (\d+) x (\d+) M, (\d) threads?")
_LOAD = re.compile(r"load: (\d+) learners at an offer a second: what a core carries")

Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One merge in memory, as the name of its figures tells it."""

    rule: str
    codec: str
    learners: int
    millions: int
    threads: int


def main() -> None:
    """Takes over what a run of `make bench` has written, and fills the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page")
    parser.add_argument(
        "taken",
        type=Path,
        nargs="*",
        help="a bench.json of all rooms to take over, and others whose rooms were taken again",
    )
    asked = [json.loads(path.read_text(encoding="utf-8")) for path in parser.parse_args().taken]
    if asked:
        TAKEN.parent.mkdir(exist_ok=True)
        TAKEN.write_text(json.dumps(together(asked), indent=1) + "\n", encoding="utf-8")
    taken = json.loads(TAKEN.read_text(encoding="utf-8"))
    for name, picture in pictures_of(taken).items():
        (TAKEN.parent / f"{name}.svg").write_text(picture, encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables_of(taken), "bench"), "utf-8")
    print(f"{PAGE.relative_to(ROOT)} is filled from {TAKEN.relative_to(ROOT)}")


def together(runs: Sequence[Told]) -> Told:
    """The first run, with the figures of rooms that later ones took again in their places."""
    whole, *others = runs
    again = {room_of(figure): run for run in others for figure in run["figures"]}
    figures = [figure for figure in whole["figures"] if room_of(figure) not in again]
    for run in others:
        figures += [figure for figure in run["figures"] if again[room_of(figure)] is run]
    return {**whole, "figures": figures, "again": sorted(again)}


def room_of(figure: Told) -> str:
    """The room in which a figure was taken."""
    room = str(figure["name"]).partition(":")[0]
    return ALSO.get(room, room)


def tables_of(taken: Told) -> dict[str, str]:
    """The page's tables by name: a room each, but for the merge's, which are two grids."""
    rooms: dict[str, list[Told]] = {}
    for figure in taken["figures"]:
        rooms.setdefault(room_of(figure), []).append(figure)
    cases = cases_of(rooms.pop("merge"))
    again = ", ".join(taken.get("again", ()))
    missed = sum(figure["met"] is False for figure in taken["figures"])
    return {
        "machine": f"{machine_told(taken['machine'])} {len(taken['figures'])} figures in "
        f"{taken['seconds'] / 60:.0f} minutes, {missed} of them short of their targets."
        + (f" Taken again by themselves: {again}." if again else ""),
        **{room: "\n".join(_plain(figures)) for room, figures in rooms.items()},
        **{name: "\n".join(_grid(cases, unit)) for unit, name in ASPECTS.items()},
    }


def pictures_of(taken: Told) -> dict[str, str]:
    """Two of the merge, by the number of deltas; one of the syncer, by the number of learners."""
    figures = taken["figures"]
    cases = cases_of([one for one in figures if one["name"].startswith("merge:")])
    return {
        **{name: svg_of(_merge_chart(cases, unit)) for unit, name in ASPECTS.items()},
        "load": svg_of(_load_chart(figures)),
    }


def cases_of(figures: Sequence[Told]) -> dict[tuple[Case, str], Told]:
    """The merge's figures by case and unit."""
    found = {}
    for figure in figures:
        match = _CASE.fullmatch(figure["name"])
        assert match is not None, figure["name"]
        rule, codec, *numbers = match.groups()
        found[Case(rule, codec, *map(int, numbers)), figure["unit"]] = figure
    return found


def _plain(figures: Sequence[Told]) -> Iterator[str]:
    """A room as it was printed."""
    yield from table("figure", "", "target", "of this")
    for one in figures:
        name = one["name"].partition(": ")[2]
        yield row(name, _value(one), _target(one), one["detail"])


def _grid(cases: Mapping[tuple[Case, str], Told], unit: str) -> Iterator[str]:
    """A row for each rule and size, a column for each codec and number of threads."""
    yield from table(
        "", *(f"{codec}, {threads} thread{'s' * (threads > 1)}" for codec, threads in COLUMNS)
    )
    sizes = {(case.rule, case.learners, case.millions): None for case, _ in cases}
    for rule, learners, millions in sorted(
        sizes, key=lambda size: (size[0] != "radial", size[2], size[1])
    ):
        told = [
            cases.get((Case(rule, codec, learners, millions, threads), unit))
            for codec, threads in COLUMNS
        ]
        yield row(
            f"{rule}, {learners} x {millions} M",
            *("" if one is None else _marked(one) for one in told),
        )


def _marked(figure: Told) -> str:
    value = written(figure["value"])
    return value if figure["met"] else f"**{value}**"


def _value(figure: Told) -> str:
    return f"{written(figure['value'])} {figure['unit']}"


def _target(figure: Told) -> str:
    if figure["target"] is None:
        return ""
    wanted = f"{figure['target']['side']} {written(figure['target']['value'])}"
    return f"{wanted}: {'met' if figure['met'] else '**missed**'}"


def _merge_chart(cases: Mapping[tuple[Case, str], Told], unit: str) -> Chart:
    drawn = [case for case, _ in cases if case.millions == DRAWN_MILLIONS and case.threads == 1]
    counts = sorted({case.learners for case in drawn})
    series = [
        Series(
            f"{rule}, {codec}",
            tuple(
                Point(place, cases[Case(rule, codec, count, DRAWN_MILLIONS, 1), unit]["value"])
                for place, count in enumerate(counts)
            ),
        )
        for rule in ("radial", "mean")
        for codec in ("bf16", "fp32")
    ]
    wanted = next(one for (_, its), one in cases.items() if its == unit)["target"]
    limit = (Point(0, wanted["value"]), Point(len(counts) - 1, wanted["value"]))
    return Chart(
        f"Merge of deltas of {DRAWN_MILLIONS} M, one thread",
        "deltas",
        f"time {unit}" if wanted["side"] == "at most" else f"rate {unit}",
        even_ticks([str(count) for count in counts]),
        (*series, Series(f"{wanted['side']} {wanted['value']:g}", limit, dashed=True)),
    )


def _load_chart(figures: Sequence[Told]) -> Chart:
    found = {
        int(match[1]): one["value"] for one in figures if (match := _LOAD.fullmatch(one["name"]))
    }
    points = tuple(Point(place, value) for place, value in enumerate(found.values()))
    return Chart(
        "Learners that one core of the syncer carries",
        "learners in the run, an offer a second each",
        "learners a core",
        even_ticks([str(count) for count in found]),
        (Series("syncer", points),),
    )


if __name__ == "__main__":
    main()
