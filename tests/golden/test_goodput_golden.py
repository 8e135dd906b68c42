"""The figures that `replay goodput --table` printed when they were last looked at.

A change of the model changes them: look at each, then write the file again with
`python -m tests.golden.test_goodput_golden`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.goodput.paper import CHIPS, TABLE_1
from replay.goodput.settings import Scenario
from replay.goodput.study import Length, table_of
from replay.goodput.told import cell_json
from replay.progress import silently

FIGURES = Path(__file__).with_name("goodput_table.json")


def figures() -> list[dict[str, Any]]:
    """A short table by both clocks."""
    return [
        cell_json(cell)
        for cell in table_of(Scenario(), ["executed", "wall"], Length(0.1, 2, seed=7), silently)
    ]


def test_the_figures_are_those_that_were_looked_at() -> None:
    """Not to the bit: a logarithm's last bit may differ between machines."""
    for ours, kept in zip(figures(), json.loads(FIGURES.read_text("utf-8")), strict=True):
        badput, kept_badput = ours.pop("badput"), kept.pop("badput")
        assert ours == pytest.approx(kept, abs=0.011)
        assert badput == pytest.approx(kept_badput, abs=0.0011)


def test_the_paper_was_typed_in_correctly() -> None:
    """Sums over its rows and columns, worked out by hand from the printed table."""
    assert CHIPS == (150_000, 300_000, 600_000, 1_200_000, 2_400_000)
    assert [sum(row.goodput) for row in TABLE_1] == [212, 335, 386, 433, 456, 472]
    assert [sum(row.uptime) for row in TABLE_1] == [212, 339, 463, 497, 499, 499]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(one) for one in figures())
    FIGURES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
