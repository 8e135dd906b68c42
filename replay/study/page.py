"""The study's page: tables put between the marks of a page that people wrote, pictures beside it.

What stands between `<!-- study:NAME -->` and `<!-- /study:NAME -->` is made; the rest is left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from replay.errors import Unwritable
from replay.goodput.study import Length, cell_of
from replay.study.cases import CHIPS, LEARNERS
from replay.study.figures import figures_of
from replay.study.results import circumstances_of, read_results
from replay.study.settings import scenario_of
from replay.study.tables import Modelled, tables_of
from streams.errors import AskedWrongly

GOODPUT = Length(days=0.5, seeds=2)


def write_page(page: Path, results: Path) -> list[Path]:
    """Fills the page's tables and writes its pictures into the folder of its name.

    The page must be there: its words are written by people. Raises AskedWrongly without it.
    """
    try:
        if not page.is_file():
            raise AskedWrongly(f"{page}: no such page; its words are written by hand")
        text = filled(page.read_text(encoding="utf-8"), made_of(results))
        page.write_text(text, encoding="utf-8")
        written = [page]
        folder = page.with_suffix("")
        folder.mkdir(exist_ok=True)
        for name, picture in figures_of(read_results(results)).items():
            path = folder / f"{name}.svg"
            path.write_text(picture, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise Unwritable(f"{page}: {error.strerror or error}") from None
    return written


def made_of(results: Path) -> Mapping[str, str]:
    """The text of each table, from a file of results."""
    circumstances = circumstances_of(results)
    if not circumstances:
        raise AskedWrongly(f"{results}: no results there; run the study first")
    return tables_of(read_results(results), circumstances, goodput_modelled())


def filled(text: str, tables: Mapping[str, str], mark: str = "study") -> str:
    """The page with these tables between its marks. Raises AskedWrongly for an unknown mark."""
    marked = re.compile(rf"<!-- {mark}:([a-z]+) -->\n.*?<!-- /{mark}:\1 -->", re.DOTALL)

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name not in tables:
            raise AskedWrongly(f"the page asks for the table {name!r}; there is none")
        return f"<!-- {mark}:{name} -->\n{tables[name]}\n<!-- /{mark}:{name} -->"

    return marked.sub(put, text)


def goodput_modelled() -> Modelled:
    """The goodput of the model behind `replay goodput`, in percent, for each case with failures."""
    return {
        (m, chips): cell_of(scenario_of(m, chips), GOODPUT).goodput
        for m in (1, *LEARNERS)
        for chips in CHIPS
        if chips
    }
