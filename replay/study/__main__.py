"""`python -m replay.study`: runs the study's cases, or the rest of them, and fills its page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.progress import progress
from replay.study.campaign import run_campaign
from replay.study.cases import PARTS, cases_of
from replay.study.page import write_page
from replay.study.settings import Study
from streams.errors import AskedWrongly, Failure

if TYPE_CHECKING:
    from replay.study.results import Result

PAGE = Path("docs/explanation/study.md")
RESULTS = Path("docs/explanation/study/results.jsonl")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def study(
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help=f"One of {', '.join(PARTS)}; all by default."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Seeds 0, 1, ... of each case.")] = 3,
    processes: Annotated[int, typer.Option(min=1, max=256, help="Cases at once.")] = 2,
    steps: Annotated[
        int | None,
        typer.Option(
            min=20, max=10**6, help="Shorter or longer runs; into another file of results."
        ),
    ] = None,
    file: Annotated[
        Path, typer.Option("--results", metavar="FILE", help="Read, and added to.")
    ] = RESULTS,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page whose tables are filled.")
    ] = None,
) -> None:
    """Train real small models under synthetic tapes, and fill the tables of the study's page.

    What the file of results has is not run again. Without --page the page is filled only from
    the file that belongs to it.
    """
    told = Study() if steps is None else Study(steps=steps)
    if steps is not None and file == RESULTS:
        raise AskedWrongly("--steps makes other runs than the page tells: name --results FILE")
    cases = cases_of(parts or ())
    with progress("studying") as tell:
        for result in run_campaign(cases, range(seeds), told, file, processes, tell):
            print(_line(result), flush=True)
    wanted = page if page is not None else (PAGE if file == RESULTS else None)
    if wanted is not None:
        for path in write_page(wanted, file):
            print(f"written: {path}")


def _line(result: Result) -> str:
    """What came of a case, for a person."""
    return (
        f"{result.case:42} seed {result.seed}: loss {result.loss:.4f}, {result.merges} merges of "
        f"{result.per_merge:.1f} learners, {result.merged:.0f} % of the work merged, goodput "
        f"{result.goodput:.0f} %, {result.cpu_seconds:.0f} s"
    )


def main() -> None:
    """Runs the command; a failure is one line on stderr and an exit code."""
    try:
        app(prog_name="python -m replay.study")
    except Failure as failure:
        print(f"study: {failure}", file=sys.stderr)
        sys.exit(failure.exit_code)


if __name__ == "__main__":
    main()
