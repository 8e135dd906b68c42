"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[int, int], None]
Note = Callable[[str], None]


def silently(done: int, total: int) -> None:
    """Tells nobody."""


def unnoted(text: str) -> None:
    """Lets nobody know."""


@contextmanager
def progress(what: str) -> Iterator[Tell]:
    """Gives a function that is told how much is done, and of how much (0: nobody knows)."""
    if not sys.stderr.isatty():
        yield silently
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        yield tell
