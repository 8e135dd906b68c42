"""How the story of a run looks: one screen on a terminal, plain lines elsewhere.

Knows the story and rich; it must not know where facts come from. A state is always told by a
word or a letter, never by colour alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from decodiloco.local.story import Lane, Story

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
EVENTS_SHOWN = 10
PROGRESS_SECONDS = 4.0
SILENT_SECONDS = 2.0


def headline(story: Story, end_steps: int | None) -> str:
    """Step, tokens, rate and loss in one line."""
    of = f" of {end_steps}" if end_steps else ""
    of = " (closing)" if story.closing else of
    of = " (closed)" if story.closed else of
    rate = story.tokens_per_second
    losses = [report.loss for report in story.evaluations]
    loss = f" | validation loss {losses[0]:.3f} -> {losses[-1]:.3f}" if losses else ""
    return f"step {story.step}{of} | {story.tokens:,} tokens, {rate:,.0f} a second{loss}"


def progress_line(story: Story, end_steps: int | None) -> str:
    """The headline, and each learner's own step."""
    lanes = ", ".join(_brief(story.lanes[id_]) for id_ in sorted(story.lanes))
    led = "" if story.leader else f" | {_nobody(story)}"
    return f"{headline(story, end_steps)} | {lanes or 'no learner yet'}{led}"


def versions_strip(story: Story) -> str:
    """Each fragment's version in order; + marks an open round, * one that is being merged."""
    marks = {around.fragment: "*" if around.closed else "+" for around in story.rounds.values()}
    return " ".join(
        f"{version}{marks.get(fragment, '')}"
        for fragment, version in sorted(story.versions.items())
    )


def screen(story: Story, events: list[str], end_steps: int | None, now_seconds: float) -> Group:
    """Everything at one look: headline, learners as lanes, fragments, rounds, events of note."""
    lanes = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("learner", "state", "step", "tokens", "tokens/s", "loss", "heard"):
        lanes.add_column(heading, justify="left" if heading in ("learner", "state") else "right")
    for number, id_ in enumerate(sorted(story.lanes)):
        lane = story.lanes[id_]
        lanes.add_row(
            Text(f"{id_} ", style=COLOURS[number % len(COLOURS)])
            + Text(_bar(lane, story), style=COLOURS[number % len(COLOURS)]),
            _state(lane, now_seconds),
            f"{lane.learner_step}",
            f"{lane.tokens_trained:,}",
            f"{lane.tokens_per_second:,.0f}",
            "-" if lane.loss is None else f"{lane.loss:.3f}",
            _heard(lane, now_seconds),
        )
    led = f"{story.leader} leads, fence {story.fence}" if story.leader else _nobody(story)
    rounds = "; ".join(
        f"{number}: fragment {around.fragment}, {''.join(sorted(around.answered)) or 'no answer'}"
        for number, around in sorted(story.rounds.items())
    )
    return Group(
        Text(headline(story, end_steps), style="bold"),
        Text(f"syncer: {led}", style="" if story.leader else "bold red"),
        lanes,
        Text(f"versions of the fragments: {versions_strip(story)}"),
        Text(f"open rounds: {rounds or 'none'}"),
        *(Text(event, style="dim") for event in events),
    )


class Display:
    """Tells the story while it happens: `note` for what is of note, `tick` some times a second."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], end_steps: int | None) -> None:
        self._console = Console(file=stream, highlight=False)
        self._clock = clock
        self._began_seconds = clock()
        self._end_steps = end_steps
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._live: Live | None = None
        self._told_seconds = self._began_seconds

    def note(self, line: str) -> None:
        """One line of note, with the seconds since the start."""
        told = f"{self._clock() - self._began_seconds:6.1f} s  {line}"
        self._events.append(told)
        if self._live is None:
            self._console.print(told, soft_wrap=True, markup=False)

    def begin(self) -> None:
        """From here on a terminal shows the screen."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def tick(self, story: Story) -> None:
        """Draws the screen; without a terminal, a progress line every few seconds."""
        now = self._clock()
        if self._live is not None:
            drawn = screen(story, list(self._events), self._end_steps, now)
            self._live.update(drawn, refresh=True)
        elif now - self._told_seconds >= PROGRESS_SECONDS:
            self._told_seconds = now
            elapsed = f"{now - self._began_seconds:6.1f} s  "
            line = elapsed + progress_line(story, self._end_steps)
            self._console.print(line, soft_wrap=True, markup=False)

    def end(self) -> None:
        """Takes the screen down and leaves the last events standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            for event in self._events:
                self._console.print(event, soft_wrap=True, markup=False)


def _nobody(story: Story) -> str:
    return "NOBODY LEADS, learners go on" if story.fence else "no syncer leads yet"


def _brief(lane: Lane) -> str:
    told = "" if lane.state == "training" else f" ({lane.state})"
    if lane.state == "training" and lane.waiting:
        told = f" (waits for the {lane.waiting})"
    return f"{lane.id} {lane.learner_step}{told}"


def _bar(lane: Lane, story: Story) -> str:
    most = max((other.learner_step for other in story.lanes.values()), default=0)
    return "━" * (round(24 * lane.learner_step / most) if most else 0)


def _state(lane: Lane, now_seconds: float) -> Text:
    if lane.state == "training":
        silent = lane.heard_seconds is None or now_seconds - lane.heard_seconds > SILENT_SECONDS
        if lane.waiting and not silent:
            return Text(f"waits: {lane.waiting}", style="yellow")
        return Text("silent", style="red") if silent else Text("training", style="green")
    return Text(lane.state, style="green" if lane.state == "finished" else "bold red")


def _heard(lane: Lane, now_seconds: float) -> str:
    if lane.heard_seconds is None:
        return "-"
    return f"{now_seconds - lane.heard_seconds:.1f} s ago"
