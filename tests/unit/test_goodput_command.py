"""`replay goodput`: what it prints, its JSON, its plots, and its mistakes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from decodiloco.errors import ConfigInvalid
from replay.cli import app
from replay.errors import Unwritable
from replay.goodput.paper import TABLE_1
from replay.goodput.plot import write_plot
from replay.goodput.settings import Scenario
from replay.goodput.study import Cell, Length, table_of
from replay.progress import silently
from streams.errors import Failure

SHORT = ("--days", "0.02", "--seeds", "2")


def goodput(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["goodput", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def told(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(goodput(*arguments, "--json").splitlines()[-1])
    assert answer["seconds"] >= 0
    return answer


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return list(table_of(Scenario(), ["executed", "wall"], Length(0.01, 1), silently))


def test_the_table_has_thirty_cells_of_each_clock_in_percent() -> None:
    answer = told("--table", *SHORT)

    assert len(answer["cells"]) == 60
    first = answer["cells"][0]
    assert {"learners", "elastic", "chips", "goodput", "uptime", "failures_clock"} <= set(first)
    assert [cell["failures_clock"] for cell in answer["cells"]] == ["executed"] * 30 + ["wall"] * 30
    for cell in answer["cells"]:
        assert cell["goodput"] + sum(cell["badput"].values()) == pytest.approx(100, abs=0.05)
    assert set(answer["errors"]) == {"executed", "wall"}


def test_one_cluster_is_told_with_the_rounds_on_top() -> None:
    answer = told("--chips", "50000", "--learners", "4", *SHORT, "--rounds-days", "0.02")

    assert [cell["failures_clock"] for cell in answer["cells"]] == ["executed", "wall"]
    assert sum(answer["rounds"]["tokens"].values()) == pytest.approx(100, abs=0.01)
    assert answer["barrier"]["goodput"] > 50


def test_one_cluster_without_rounds_and_without_elasticity() -> None:
    answer = told("--no-elastic", "--clock", "wall", *SHORT, "--rounds-days", "0")
    assert [cell["elastic"] for cell in answer["cells"]] == [False]
    assert "rounds" not in answer


def test_bandwidth_checkpoints_and_scavenging_are_told(tmp_path: Path) -> None:
    assert len(told("--bandwidth")["bandwidth"]) == 60
    assert len(told("--checkpoints")["checkpoints"]) == 5
    assert told("--scavenge", "work", "--learners", "4")["ideal"] == pytest.approx(0.75)
    clock = told("--scavenge", "clock", "--learners", "4", "--set", "scavenging.share=0.25")
    assert clock["ideal"] == pytest.approx(0.8, abs=0.03)
    trace = tmp_path / "trace.csv"
    trace.write_text("0,0\n10,4\n", encoding="utf-8")
    stuck = told("--scavenge", str(trace), "--learners", "4")
    assert stuck["scavenging"]["data parallel"]["relative_time"] is None


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("--table", "--bandwidth"), "ask for one of"),
        (("--plot", "a.html"), "--plot goes with --table"),
        (("--clock", "sand"), "executed, wall or both"),
        (("--set", "costs.up=1"), "nearest is costs.up_seconds"),
        (("--chips", "0"), "cluster.chips"),
    ],
)
def test_a_mistake_is_told_in_a_line(arguments: tuple[str, ...], answer: str) -> None:
    with pytest.raises(Failure, match=answer) as caught:
        goodput(*arguments)
    assert caught.value.exit_code == 2


def test_a_page_shows_both_clocks_and_the_figures_of_the_paper(
    tmp_path: Path, cells: list[Cell]
) -> None:
    write_plot(tmp_path / "plot.html", cells)

    page = (tmp_path / "plot.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert page.count("<circle") == 2 * 60
    assert all(row.name in page for row in TABLE_1)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "(58)" in page


def test_a_picture_alone_is_svg(tmp_path: Path, cells: list[Cell]) -> None:
    write_plot(tmp_path / "plot.svg", cells)
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_png_without_matplotlib_names_the_extra(
    tmp_path: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ConfigInvalid, match=r"decodiloco\[plots\]"):
        write_plot(tmp_path / "plot.png", cells)


def test_a_png_is_written_where_matplotlib_is(tmp_path: Path, cells: list[Cell]) -> None:
    pytest.importorskip("matplotlib")
    write_plot(tmp_path / "plot.png", cells)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_of_another_kind_or_place_is_refused(tmp_path: Path, cells: list[Cell]) -> None:
    with pytest.raises(ConfigInvalid, match=r"\.html, \.svg or \.png"):
        write_plot(tmp_path / "plot.gif", cells)
    with pytest.raises(Unwritable):
        write_plot(tmp_path / "nowhere" / "plot.html", cells)
