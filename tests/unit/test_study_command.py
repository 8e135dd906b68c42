"""`python -m replay.study`: what it prints, keeps and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from replay.study.__main__ import RESULTS, app
from replay.study.campaign import circumstances
from replay.study.results import add_circumstances, add_result
from replay.study.settings import Study
from streams.errors import AskedWrongly
from tests.study_results import all_results


def study(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_what_the_file_lacks_is_run_and_printed_and_fills_the_page(tmp_path: Path) -> None:
    page, file = tmp_path / "mine.md", tmp_path / "mine.jsonl"
    page.write_text("<!-- study:quorum -->\n<!-- /study:quorum -->\n")
    add_circumstances(file, circumstances(Study(steps=20)))
    for known in all_results(1, ["quorum"])[:-1]:
        add_result(file, known)
    asked = ("--part", "quorum", "--seeds", "1", "--steps", "20", "--processes", "1")
    told = study(*asked, "--results", str(file), "--page", str(page)).splitlines()
    written = told[1:]
    assert told[0].startswith("learners=8  ") and "seed 0: loss " in told[0]
    assert written[0] == f"written: {page}" and all("written: " in line for line in written)
    assert "half 18 % slower" in page.read_text()
    again = study(*asked, "--results", str(file), "--page", str(page)).splitlines()
    assert again == written


def test_other_lengths_do_not_go_into_the_pages_file() -> None:
    with pytest.raises(AskedWrongly, match="name --results FILE"):
        study("--steps", "20")
    assert RESULTS.name == "results.jsonl"


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AskedWrongly, match="no part 'speed'"):
        study("--part", "speed", "--results", str(tmp_path / "mine.jsonl"))
