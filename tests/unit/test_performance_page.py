"""The page on performance: its tables and plots are those of one run of the bench, every room's."""

from __future__ import annotations

import json
import re

from replay.study.page import filled
from tests.bench.__main__ import ROOMS
from tests.bench.page import ASPECTS, PAGE, TAKEN, pictures_of, tables_of


def test_the_page_and_its_plots_are_made_of_what_was_measured() -> None:
    taken, text = json.loads(TAKEN.read_text()), PAGE.read_text()

    assert filled(text, tables_of(taken), "bench") == text, "run: python -m tests.bench.page"
    for name, picture in pictures_of(taken).items():
        assert (TAKEN.parent / f"{name}.svg").read_text() == picture


def test_every_room_was_run_and_stands_on_the_page() -> None:
    told = {figure["name"].partition(":")[0] for figure in json.loads(TAKEN.read_text())["figures"]}
    marked = set(re.findall(r"<!-- bench:([a-z]+) -->", PAGE.read_text()))

    assert told >= set(ROOMS)
    assert marked >= {"machine", *ASPECTS.values(), *ROOMS} - {"merge"}
