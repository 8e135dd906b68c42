"""The lines of `replay show` on a terminal, in colour and cut to its width, or plain in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from replay.errors import NotReached
from replay.place import Place
from replay.show import (
    Line,
    Teller,
    Wanted,
    Widths,
    heading,
    is_alarming,
    plain,
    widths_within,
)
from streams.errors import Corrupt
from streams.events import LearnerJoined


def print_tape(place: Place, wanted: Wanted) -> None:
    """Prints the wanted lines as they are read; what a broken tape still tells is printed too.

    Raises NotReached for a learner that never joined or an unknown fragment, and the tape's own
    errors after the last line that could be read.
    """
    names, fragments = _learners(place)
    if wanted.fragment is not None and wanted.fragment >= fragments:
        raise NotReached(
            f"run {place.run}: no fragment {wanted.fragment} is on the tape; known: "
            + (f"0 to {fragments - 1}" if fragments else "none")
        )
    if wanted.learner is not None:
        if wanted.learner not in names:
            known = ", ".join(names) or "none"
            raise NotReached(
                f"run {place.run}: no learner {wanted.learner!r} is on the tape; known: {known}"
            )
        names = (wanted.learner,)
    lines = Teller(wanted).lines(place.envelopes())
    if sys.stdout.isatty():
        _print_coloured(lines, names, wanted.clocks)
        return
    widths = Widths()
    print(heading(names, wanted.clocks, widths))
    for line in lines:
        print(plain(line, names, widths))


def _learners(place: Place) -> tuple[tuple[str, ...], int]:
    """Who stands on the tape, as far as it can be read, by id; and how many fragments do."""
    found: dict[str, None] = {}
    fragments = 0
    with suppress(Corrupt):  # told by the second pass, after the lines that stand before it
        for envelope in place.envelopes():
            if isinstance(envelope.event, LearnerJoined):
                found[envelope.event.learner] = None
                fragments = len(envelope.event.versions)
    return tuple(sorted(found)), fragments


def _print_coloured(lines: Iterator[Line], names: tuple[str, ...], clocks: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    widths = widths_within(console.width, len(names))
    head = Text(heading(names, clocks, widths), style="bold")
    console.print(head, no_wrap=True, overflow="ellipsis")
    for line in lines:
        text = Text(plain(line, names, widths), style=_style(line))
        console.print(text, no_wrap=True, overflow="ellipsis", crop=True)


def _style(line: Line) -> str:
    if is_alarming(line):
        return "bold red"
    if " merged to " in line.run:
        return "green"
    if line.run.startswith(("loss", "run ")):
        return "bold cyan"
    return "dim" if " opens " in line.run else ""
