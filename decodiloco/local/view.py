"""How the story of a run looks: one screen on a terminal, plain lines elsewhere.

Knows the story and rich; it must not know where facts come from. A state is always told by a
word or a letter, never by colour alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from decodiloco.local.story import Lane, Story
from decodiloco.times import PROGRESS_SECONDS

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
LANE_CELLS = 14
BAR_CELLS = 24
LANES = (  # headings and least widths: columns that stand still can be read
    ("learner", 8),
    ("", LANE_CELLS),
    ("state", 13),
    ("step", 6),
    ("tokens", 10),
    ("tokens/s", 8),
    ("loss", 6),
    ("silent", 7),
)
EVENTS_SHOWN_MIN, EVENTS_SHOWN_MAX = 3, 12
ROWS_BESIDE = 11  # rows of the screen that are neither lanes nor events


def headline(story: Story, end_steps: int | None) -> str:
    """Step, tokens, rate and loss in one line."""
    loss = f" | loss {_loss(story)}" if story.evaluations else ""
    return f"{_step(story, end_steps)} | {_tokens(story)}{loss}"


def progress_line(story: Story, end_steps: int | None) -> str:
    """The headline, and each learner's own step."""
    lanes = ", ".join(_brief(story.lanes[id_]) for id_ in sorted(story.lanes))
    led = "" if story.leader else f" | syncer: {_nobody(story)}"
    return f"{headline(story, end_steps)} | {lanes or 'no learner yet'}{led}"


def versions_strip(story: Story) -> str:
    """Each fragment's version in order; + marks an open round, * one that is being merged."""
    marks = {around.fragment: "*" if around.closed else "+" for around in story.rounds.values()}
    return " ".join(
        f"{version}{marks.get(fragment, '')}"
        for fragment, version in sorted(story.versions.items())
    )


def screen(story: Story, events: Sequence[str], end_steps: int | None, now_seconds: float) -> Group:
    """Everything at one look: headline, learners as lanes, fragments, rounds, events of note."""
    led = f"{story.leader} leads (fence {story.fence})" if story.leader else _nobody(story)
    is_alarm = story.leader is None and story.fence > 0 and story.closed is None
    return Group(
        Text(_progress(story, end_steps), style="bold"),
        Text(f"loss      {_loss(story)}"),
        Text(f"syncer    {led}", style="bold red" if is_alarm else ""),
        Text(""),
        _lanes(story, now_seconds) if story.lanes else Text("no learner has joined yet"),
        Text(""),
        Text(f"versions  {versions_strip(story) or '-'}"),
        Text(f"rounds    {_rounds(story)}"),
        Text(""),
        *(Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in events),
    )


def _progress(story: Story, end_steps: int | None) -> str:
    done = min(1.0, story.step / end_steps) if end_steps else 0.0
    filled = round(BAR_CELLS * done)
    bar = f"  {'█' * filled}{'░' * (BAR_CELLS - filled)}  " if end_steps else "  "
    return f"{_step(story, end_steps)}{bar}{_tokens(story)}"


def _lanes(story: Story, now_seconds: float) -> Table:
    lanes = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading, width in LANES:
        is_word = heading in ("learner", "", "state")
        lanes.add_column(heading, justify="left" if is_word else "right", min_width=width)
    for number, id_ in enumerate(sorted(story.lanes)):
        lane = story.lanes[id_]
        colour = COLOURS[number % len(COLOURS)]
        lanes.add_row(
            Text(id_, style=colour),
            Text(_bar(lane, story), style=colour),
            _state(lane, now_seconds, story.faded_seconds),
            f"{lane.learner_step}",
            f"{lane.tokens_trained:,}",
            f"{lane.tokens_per_second:,.0f}",
            "-" if lane.loss is None else f"{lane.loss:.3f}",
            _silent(lane, now_seconds),
        )
    return lanes


def _rounds(story: Story) -> str:
    """The open rounds, and who has answered each."""
    told = []
    for number, around in sorted(story.rounds.items()):
        answered = ", ".join(sorted(around.answered)) or "nobody yet"
        told.append(f"{number} (fragment {around.fragment}): {answered}")
    return "; ".join(told) or "none is open"


class Screen(Console):
    """A console whose reader may go away: then it is quiet, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class Display:
    """Tells the story while it happens: `note` for what is of note, `tick` some times a second.

    A terminal or reader that goes away ends the telling, never the run.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float], end_steps: int | None) -> None:
        self._console = Screen(file=stream, highlight=False)
        self._clock = clock
        self._began_seconds = clock()
        self._end_steps = end_steps
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN_MAX)
        self._live: Live | None = None
        self._told_seconds = self._began_seconds

    def note(self, line: str) -> None:
        """One line of note, with the seconds since the start."""
        told = f"{self._clock() - self._began_seconds:6.1f} s  {line}"
        if self._live is None:
            self._print(told)
        else:
            self._events.append(told)

    def begin(self) -> None:
        """From here on a terminal shows the screen."""
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            with suppress(OSError):
                self._live.start()

    def tick(self, story: Story) -> None:
        """Draws the screen; without a terminal, a progress line every few seconds."""
        now = self._clock()
        if self._live is not None:
            room = self._console.height - ROWS_BESIDE - len(story.lanes)
            shown = list(self._events)[-max(EVENTS_SHOWN_MIN, room) :]
            with suppress(OSError):
                self._live.update(screen(story, shown, self._end_steps, now), refresh=True)
        elif now - self._told_seconds >= PROGRESS_SECONDS:
            self._told_seconds = now
            elapsed = f"{now - self._began_seconds:6.1f} s  "
            self._print(elapsed + progress_line(story, self._end_steps))

    def end(self) -> None:
        """Takes the screen down and leaves the last events standing."""
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None
            for event in self._events:
                self._print(event)
            self._events.clear()

    def _print(self, line: str) -> None:
        with suppress(OSError):
            self._console.print(line, soft_wrap=True, markup=False)


def _step(story: Story, end_steps: int | None) -> str:
    of = f" of {end_steps}" if end_steps else ""
    of = " (closing)" if story.closing else of
    of = " (closed)" if story.closed else of
    return f"step {story.step}{of}"


def _tokens(story: Story) -> str:
    return f"{story.tokens:,} tokens, {story.tokens_per_second:,.0f} a second"


def _loss(story: Story) -> str:
    """Of the merged model on held-out text, first and last."""
    if not story.evaluations:
        return "not evaluated yet"
    first, last = story.evaluations[0], story.evaluations[-1]
    return f"{first.loss:.3f} -> {last.loss:.3f}"


def _nobody(story: Story) -> str:
    return "NOBODY LEADS; learners go on" if story.fence else "none leads yet"


def _brief(lane: Lane) -> str:
    told = "" if lane.state == "training" else f" ({lane.state})"
    if lane.state == "training" and lane.waiting:
        told = f" (waits for the {lane.waiting})"
    return f"{lane.id} {lane.learner_step}{told}"


def _bar(lane: Lane, story: Story) -> str:
    most = max((other.learner_step for other in story.lanes.values()), default=0)
    return "━" * (round(LANE_CELLS * lane.learner_step / most) if most else 0)


def _state(lane: Lane, now_seconds: float, faded_seconds: float) -> Text:
    if lane.state == "training":
        silent = lane.heard_seconds is None or now_seconds - lane.heard_seconds > faded_seconds
        if lane.waiting and not silent:
            return Text(f"waits: {lane.waiting}", style="yellow")
        return Text("silent", style="red") if silent else Text("training", style="green")
    return Text(lane.state, style="green" if lane.state == "finished" else "bold red")


def _silent(lane: Lane, now_seconds: float) -> str:
    if lane.heard_seconds is None:
        return "-"
    return f"{now_seconds - lane.heard_seconds:.1f} s"
