"""`python -m replay.study`: what it prints, keeps and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from replay.study.__main__ import RESULTS, app
from streams.errors import AskedWrongly


def study(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_part_prints_a_line_for_each_case_and_is_not_run_twice(tmp_path: Path) -> None:
    page, file = tmp_path / "mine.md", tmp_path / "mine.jsonl"
    page.write_text("<!-- study:quorum -->\n<!-- /study:quorum -->\n")
    asked = ("--part", "quorum", "--seeds", "1", "--steps", "20", "--processes", "1")
    told = study(*asked, "--results", str(file), "--page", str(page)).splitlines()
    assert len(told) == 4 + 1
    assert told[0].startswith("learners=8 quorum=8 grace=False slower_percent=18")
    assert "half 18 % slower" in page.read_text()
    again = study(*asked, "--results", str(file), "--page", str(page)).splitlines()
    assert again == [f"written: {page}"]


def test_other_lengths_do_not_go_into_the_pages_file() -> None:
    with pytest.raises(AskedWrongly, match="name --results FILE"):
        study("--steps", "20")
    assert RESULTS.name == "results.jsonl"


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AskedWrongly, match="no part 'speed'"):
        study("--part", "speed", "--results", str(tmp_path / "mine.jsonl"))
