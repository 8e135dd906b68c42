"""The study's page: its tables and pictures are what its results give."""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path

import pytest

from replay.study.campaign import circumstances
from replay.study.cases import PARTS
from replay.study.chart import Chart, Point, Series, even_ticks, round_steps, svg_of
from replay.study.figures import figures_of
from replay.study.page import filled, goodput_modelled, made_of, write_page
from replay.study.results import Circumstances, add_circumstances, add_result, read_results
from replay.study.settings import Study
from replay.study.tables import tables_of
from streams.errors import AskedWrongly
from tests.study_results import all_results

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "study.md"
RESULTS = ROOT / "docs" / "explanation" / "study" / "results.jsonl"
MODELLED = {(m, chips): 80.0 for m in (1, 2, 4, 8, 16) for chips in (1_200_000, 2_400_000)}
MADE = [Circumstances("0123456789abcdef", {}, "abc", "2.13", "a processor")]


def test_the_pages_tables_are_what_its_results_give() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, made_of(RESULTS)) == text, "run: make study"


def test_the_pages_pictures_are_what_its_results_give() -> None:
    pictures = figures_of(read_results(RESULTS))
    found = {path.stem: path.read_text(encoding="utf-8") for path in RESULTS.parent.glob("*.svg")}
    assert found == pictures, "run: make study"


def test_the_page_has_every_table_and_shows_every_picture() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("circumstances", *PARTS):
        assert f"<!-- study:{name} -->" in text
    for name in figures_of(read_results(RESULTS)):
        assert f"(study/{name}.svg)" in text


def test_a_table_has_a_line_for_each_case_with_mean_and_error() -> None:
    tables = tables_of(all_results(3), MADE, MODELLED)
    assert set(tables) == {"circumstances", *PARTS}
    for part, cases in PARTS.items():
        if part not in ("momentum", "scavenging"):
            lines = [line for line in tables[part].splitlines() if line.startswith("|")]
            assert len(lines) == 2 + len(cases())
        assert "±" in tables[part] and "degrees of freedom" in tables[part]
    widths = {line.count("|") for line in tables["learners"].splitlines() if line[:1] == "|"}
    assert len(widths) == 1
    assert "Noise, 16 learners: " in tables["rules"] and "Noise, the others: " in tables["rules"]


def test_with_one_seed_there_are_figures_but_no_errors() -> None:
    tables = tables_of(all_results(1), MADE, MODELLED)
    assert "±" not in "".join(tables.values())
    assert "degrees of freedom" not in tables["rules"]


def test_a_part_without_results_says_so() -> None:
    tables = tables_of(all_results(2, ["quorum"]), MADE, MODELLED)
    assert tables["momentum"] == "No results yet."
    assert tables["quorum"].startswith("| cluster |")


def test_a_page_that_asks_for_an_unknown_table_is_refused() -> None:
    text = "<!-- study:speed -->\n<!-- /study:speed -->"
    with pytest.raises(AskedWrongly, match="'speed'"):
        filled(text, {"rules": "x"})


def test_only_what_stands_between_the_marks_is_made(tmp_path: Path) -> None:
    page, results = tmp_path / "study.md", tmp_path / "results.jsonl"
    page.write_text("Before.\n\n<!-- study:rules -->\nold\n<!-- /study:rules -->\n\nAfter.\n")
    add_circumstances(results, circumstances(Study()))
    for one in all_results(2):
        add_result(results, one)
    written = write_page(page, results)
    text = page.read_text()
    assert text.startswith("Before.\n\n<!-- study:rules -->\n| learners |")
    assert text.endswith("<!-- /study:rules -->\n\nAfter.\n") and "old" not in text
    assert [path.name for path in written] == [
        "study.md", "learners.svg", "rules.svg", "adoption.svg", "momentum.svg",
        "scavenging.svg", "curves.svg",
    ]  # fmt: skip
    before = text
    write_page(page, results)
    assert page.read_text() == before


def test_a_page_or_results_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(AskedWrongly, match="no such page"):
        write_page(tmp_path / "none.md", tmp_path / "none.jsonl")
    with pytest.raises(AskedWrongly, match="no results there"):
        made_of(tmp_path / "none.jsonl")


def test_pictures_are_sound_xml_with_a_line_for_each_series() -> None:
    for picture in figures_of(all_results(2)).values():
        root = xml.etree.ElementTree.fromstring(picture)
        assert root.tag.endswith("svg")
        assert len(root.findall("{*}polyline")) >= 1
    assert figures_of([]) == {}


def test_a_chart_puts_high_values_high_and_error_bars_around_points() -> None:
    points = (Point(0.0, 1.0), Point(1.0, 2.0, error=0.5))
    chart = Chart("a < b", "x", "y", even_ticks(["one", "two"]), (Series("s", points, True),))
    root = xml.etree.ElementTree.fromstring(svg_of(chart))
    low, high = (float(circle.attrib["cy"]) for circle in root.findall("{*}circle"))
    assert high < low
    assert "a < b" in [text.text for text in root.findall("{*}text")]


@pytest.mark.parametrize(
    ("low", "high", "steps"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (1.91, 2.03, [1.9, 1.95, 2.0, 2.05]),
        (2.0, 2.0, [2.0]),
    ],
)
def test_the_axis_has_round_numbers(low: float, high: float, steps: list[float]) -> None:
    assert round_steps(low, high) == pytest.approx(steps)


def test_the_models_goodput_is_that_of_table_1() -> None:
    modelled = goodput_modelled()
    assert modelled[1, 1_200_000] == pytest.approx(58, abs=5)
    assert modelled[8, 2_400_000] == pytest.approx(80, abs=5)
