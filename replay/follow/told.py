"""What a follower of a live run says: its alarm, how far it is behind, how it ended.

Values and words only. Pure: knows no clock, no store and no tape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from replay.show_words import told_bytes
from streams.envelope import Envelope
from streams.events import Event

Ended = Literal["closed", "stopped", "alarm"]
"""The run is closed and all is checked; told to stop (SIGTERM); the first difference."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """The first difference: where it stands on the tape, what differs, in which blob.

    `seconds_after` counts from the moment that the fact carries, by the clocks of two machines.
    """

    run: str
    what: str
    position: int | None
    event: str
    round: int | None
    fragment: int | None
    key: str | None
    bytes: int | None
    seconds_after: float | None

    def line(self) -> str:
        """All of it in one line."""
        told = [f"run {self.run}"]
        if self.position is not None:
            told.append(f"position {self.position} ({self.event})")
        told += [
            f"{name} {value}"
            for name, value in (("round", self.round), ("fragment", self.fragment))
            if value is not None
        ]
        size = "" if self.bytes is None else f" of {told_bytes(self.bytes)}"
        blob = "" if self.key is None else f" [blob {self.key}{size}]"
        after = "" if self.seconds_after is None else f"; {self.seconds_after:.1f} s after the fact"
        return f"ALARM: {', '.join(told)}: {_one_line(self.what)}{blob}{after}"

    def as_json(self) -> Mapping[str, object]:
        """The object that `--json` and `--alarm` give."""
        return {
            "alarm": _one_line(self.what),
            "run": self.run,
            "position": self.position,
            "event": self.event,
            "round": self.round,
            "fragment": self.fragment,
            "key": self.key,
            "bytes": self.bytes,
            "seconds_after": self.seconds_after,
        }


def alarm_of(
    run: str, what: str, where: Envelope | int | None, key: str | None, now_seconds: float
) -> Alarm:
    """The alarm about one fact, about a position where none could be read, or about all."""
    if not isinstance(where, Envelope):
        return Alarm(run, what, where, "unread", None, None, key, None, None)
    envelope, event = where, where.event
    return Alarm(
        run=run,
        what=what,
        position=envelope.position,
        event=event.kind,
        round=_number(event, "round"),
        fragment=_number(event, "fragment"),
        key=key,
        bytes=_named_bytes(event, key),
        seconds_after=round(max(0.0, now_seconds - envelope.time_seconds), 2),
    )


@dataclass(slots=True)
class Watched:
    """What a follower has seen. `position`: all up to there is checked (or shown).

    `unjudged` counts snapshots of positions whose state is no longer, or was never, at hand.
    """

    run: str
    begun: int = 0
    position: int = 0
    step: int = 0
    events: int = 0
    merges_checked: int = 0
    bytes_checked: int = 0
    unjudged: int = 0
    takeovers: int = 0
    lag_facts_max: int = 0
    lag_seconds_max: float = 0.0
    ended: Ended = "stopped"
    alarm: Alarm | None = None

    def as_json(self) -> Mapping[str, object]:
        """The one object at the end of `replay follow --verify --json`."""
        return {
            "ok": self.alarm is None,
            "run": self.run,
            "ended": self.ended,
            "from": self.begun,
            "position": self.position,
            "step": self.step,
            "events": self.events,
            "merges_checked": self.merges_checked,
            "bytes_checked": self.bytes_checked,
            "snapshots_unjudged": self.unjudged,
            "takeovers": self.takeovers,
            "lag_facts_max": self.lag_facts_max,
            "lag_seconds_max": round(self.lag_seconds_max, 2),
            "first_difference": None if self.alarm is None else self.alarm.as_json(),
        }

    def line(self) -> str:
        """How it ended, for a person."""
        how = {
            "closed": "agreed: the run is closed, and every merge that was watched is what it says",
            "stopped": "stopped when told to; agreed as far as it goes",
            "alarm": "DIFFERS",
        }[self.ended]
        unjudged = f"; {self.unjudged} snapshots not compared" if self.unjudged else ""
        return (
            f"run {self.run}, positions {self.begun} to {self.position}: {self.events} facts, "
            f"{self.merges_checked} merges made again, {told_bytes(self.bytes_checked)} compared"
            f"{unjudged}; {how}"
        )


def lag_line(watched: Watched, facts: int, seconds: float) -> str:
    """Where a shadow is, and how far the tape's end is from there."""
    return (
        f"position {watched.position}, step {watched.step}: {watched.merges_checked} merges made "
        f"again; behind by {facts} facts, {seconds:.1f} s"
    )


def _number(event: Event, name: str) -> int | None:
    found = getattr(event, name, None)
    return found if isinstance(found, int) else None


def _named_bytes(event: Event, key: str | None) -> int | None:
    """The size of the blob that a fact names, where the key is that of one of its manifests."""
    for name in ("parameters", "momentum", "report", "manifest", "opening"):
        manifest = getattr(event, name, None)
        if manifest is not None and key is not None and key.endswith(manifest.digest.hex()[:16]):
            return int(manifest.bytes)
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
