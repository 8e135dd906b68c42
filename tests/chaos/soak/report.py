"""A soak's report: a table for people, JSON for scripts. Knows figures, not where they are from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.soak.checks import Figure
from tests.chaos.soak.stepping import Stepping, bins


@dataclass(slots=True)
class Report:
    """All that a soak found."""

    seed: int
    minutes: float
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Mapping[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    stepping: Stepping | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every figure is within its bound."""
        return bool(self.figures) and all(figure.met for figure in self.figures)

    @property
    def command(self) -> str:
        """What to type to run this soak again."""
        return f"make soak MINUTES={self.minutes:g} SEED={self.seed}"


def lines_of(report: Report, pace_seconds: float) -> list[str]:
    """The tables, a line each."""
    lines = [f"soak of {report.minutes:g} minutes, seed {report.seed}, in {report.folder}", ""]
    lines += _table(
        ("fault", "times"),
        [(kind, str(count)) for kind, count in sorted(report.faults.items())]
        + [("all faults", str(report.faults.total()))],
    )
    lines += [f"skipped: {kind} ({why})" for kind, why in sorted(report.skipped.items())]
    rows = [
        (figure.name, figure.found, figure.bound, "met" if figure.met else "NOT MET")
        for figure in report.figures
    ]
    lines += ["", *_table(("figure", "found", "bound", ""), rows)]
    lines += [f"  {figure.name}: {figure.detail}" for figure in report.figures if figure.detail]
    if report.stepping is not None:
        found = report.stepping.histogram
        share = [f"{100 * count / max(1, sum(found)):.3f} %" for count in found]
        counted = zip(bins(pace_seconds), (f"{count:,}" for count in found), share, strict=True)
        lines += ["", *_table(("between two steps", "times", "share"), list(counted))]
    lines += ["", *(f"{name}: {told}" for name, told in report.notes.items())]
    if not report.ok:
        lines += ["", f"FAILED; everything is kept in {report.folder}", f"again: {report.command}"]
    return lines


def write_json(report: Report) -> Path:
    """The report as one JSON object, in its folder."""
    path = report.folder / "soak.json"
    whole = {
        "ok": report.ok,
        "seed": report.seed,
        "minutes": report.minutes,
        "command": report.command,
        "faults": dict(sorted(report.faults.items())),
        "skipped": dict(report.skipped),
        "figures": [asdict(figure) for figure in report.figures],
        "stepping": None if report.stepping is None else asdict(report.stepping),
        "notes": report.notes,
    }
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return path


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
