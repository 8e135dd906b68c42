"""A tape as a table for people: one line a fact, one column a learner. Knows no torch, no numpy.

What the syncer says stands in the column `run`; what became of a learner's offer stands in the
learner's own column, on the line of the fact that decided it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from replay.clocks import Clock, Clocks
from replay.show_words import ALARMING, cells_of
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    Event,
    FragmentMerged,
    MergeAbandoned,
    RoundOpened,
)
from streams.printing import printable

CELL_WIDTH = 40
RUN_WIDTH = 46
RUN_WIDTH_MAX = 64
GAP = "  "
GAP_WIDTH = len(GAP)
OFFERS_MAX = 20_000  # and rounds, that are remembered: later facts name only young ones
LEAD_WIDTH = 8 + 1 + 8 + 1 + 5 + GAP_WIDTH


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines are shown: of one learner, of one fragment, from one position to another."""

    learner: str | None = None
    fragment: int | None = None
    first: int = 1
    last: int | None = None
    clocks: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One fact: its position, the time, the syncer step after it, and a text for each column."""

    position: int
    time_seconds: float
    step: int
    run: str
    cells: Mapping[str, str]
    clock: Clock | None = None


@dataclass(slots=True)
class Teller:
    """Lines from envelopes, told from the first of the tape on; remembers whose offer is whose."""

    wanted: Wanted
    step: int = 0
    _offers: dict[int, DeltaOffered] = field(default_factory=dict)
    _fragments: dict[int, int] = field(default_factory=dict)
    _clocks: Clocks = field(default_factory=Clocks)

    def lines(self, envelopes: Iterable[Envelope]) -> Iterator[Line]:
        """The lines that are wanted."""
        for envelope in envelopes:
            line = self._tell(envelope)
            if line is not None:
                yield line

    def _tell(self, envelope: Envelope) -> Line | None:
        event, wanted = envelope.event, self.wanted
        clock = self._clocks.tell(envelope) if wanted.clocks else None
        self._remember(envelope)
        last = wanted.last if wanted.last is not None else envelope.position
        if not wanted.first <= envelope.position <= last:
            return None
        if wanted.fragment is not None and self._fragment_of(event) != wanted.fragment:
            return None
        run, cells = cells_of(event, self._offers)
        if wanted.learner is not None:
            if wanted.learner not in cells:
                return None
            cells = {wanted.learner: cells[wanted.learner]}
        return Line(envelope.position, envelope.time_seconds, self.step, run, cells, clock)

    def _remember(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, DeltaOffered):
            self._offers[envelope.position] = event
            if len(self._offers) > OFFERS_MAX:
                del self._offers[next(iter(self._offers))]
        elif isinstance(event, RoundOpened):
            self._fragments[event.round] = event.fragment
            self._fragments.pop(event.round - OFFERS_MAX, None)
        elif isinstance(event, FragmentMerged):
            self.step = event.step

    def _fragment_of(self, event: Event) -> int | None:
        if isinstance(event, MergeAbandoned):
            return self._fragments.get(event.round)
        return getattr(event, "fragment", None)


@dataclass(frozen=True, slots=True)
class Widths:
    """How wide the column `run` and each learner's are. Longer texts are cut only if `cut`."""

    run: int = RUN_WIDTH
    cell: int = CELL_WIDTH
    cut: bool = False

    def fit(self, text: str, width: int) -> str:
        """The text in its column; strangers' words may stand in it."""
        text = printable(text)
        if self.cut and len(text) > width:
            return text[: width - 1] + "…"
        return f"{text:{width}}"


def widths_within(columns: int, learners: int) -> Widths:
    """The widest columns that a terminal shows side by side."""
    free = columns - LEAD_WIDTH
    run = min(RUN_WIDTH_MAX, max(24, free // (learners + 2) * 2))
    cell = (free - run) // max(1, learners) - GAP_WIDTH
    return Widths(run, max(10, min(CELL_WIDTH, cell)), cut=True)


def heading(learners: Iterable[str], clocks: bool, widths: Widths) -> str:
    """The first line: names of the columns."""
    names = [f"{'position':>8} {'time':8} {'step':>5}", widths.fit("run", widths.run)]
    names += [widths.fit(name, widths.cell) for name in learners]
    return GAP.join([*names, "clock"] if clocks else names).rstrip()


def plain(line: Line, learners: Iterable[str], widths: Widths) -> str:
    """A line in columns, without colour."""
    moment = time_of_day(line.time_seconds)
    texts = [f"{line.position:>8} {moment} {line.step:>5}", widths.fit(line.run, widths.run)]
    texts += [widths.fit(line.cells.get(name, ""), widths.cell) for name in learners]
    if line.clock is not None:
        texts.append(str(line.clock))
    return GAP.join(texts).rstrip()


def is_alarming(line: Line) -> bool:
    """Whether somebody at 3 a.m. should look at this line first."""
    words = (line.run, *line.cells.values())
    return any(word.startswith(ALARMING) for word in words)


def time_of_day(time_seconds: float) -> str:
    """Hours, minutes and seconds, in UTC."""
    minutes, seconds = divmod(int(time_seconds) % 86_400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
