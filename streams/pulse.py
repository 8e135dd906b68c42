"""The pulse as a port: heartbeats, off the record. Only their consequences become facts.

A beat may be lost, doubled or late; nobody waits for one to arrive. This file knows what a beat
is and how it is coded, not how it travels.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.printing import printable
from streams.subjects import is_name

Role = Literal["learner", "syncer", "evaluator", "merger"]
Value = int | float | str

ROLES: tuple[Role, ...] = ("learner", "syncer", "evaluator", "merger")
BEAT_BYTES_MAX = 2048
COUNT_MAX = 2**53
SECONDS_MAX = 24 * 3600.0
TEXT_LENGTH_MAX = 200
LISTENER_BEATS_MAX = 1000  # what a slow listener may have waiting; the oldest give way


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat: who is alive, and what they say of themselves."""

    role: Role
    speaker: str
    values: Mapping[str, Value]

    def count(self, name: str) -> int:
        """A count that the beat tells; 0 where it tells none that can be."""
        value = self.values.get(name)
        return value if isinstance(value, int) and 0 <= value <= COUNT_MAX else 0

    def seconds(self, name: str) -> float:
        """A duration; 0.0 where the beat tells none that can be."""
        value = self.values.get(name)
        if isinstance(value, int | float) and 0 <= value <= SECONDS_MAX:
            return float(value)
        return 0.0

    def number(self, name: str) -> float | None:
        """A number as it was told, also one that is not finite; None where none is."""
        value = self.values.get(name)
        return float(value) if isinstance(value, int | float) else None

    def text(self, name: str) -> str:
        """A text that a terminal may show; empty where the beat tells none."""
        value = self.values.get(name)
        return printable(value)[:TEXT_LENGTH_MAX] if isinstance(value, str) else ""


class Pulse(Protocol):
    """The heartbeats of one run."""

    run: str

    async def beat(self, beat: Beat) -> None:
        """Sends a beat if that can be done now; no connection is no error."""
        ...

    def listen(self) -> AsyncGenerator[Beat, None]:
        """Beats of the run from now on, without end. Rides over lost connections."""
        ...

    async def close(self) -> None: ...


def encode_beat(beat: Beat) -> bytes:
    """The values of a beat; role and speaker travel in its subject."""
    payload = pack(dict(beat.values))
    assert len(payload) <= BEAT_BYTES_MAX, f"a beat of {len(payload)} bytes"
    return payload


def decode_beat(role: str, speaker: str, payload: bytes) -> Beat | None:
    """The beat, or None for bytes that are none: anybody may send anything."""
    try:
        values = unpack(payload, BEAT_BYTES_MAX)
    except Unreadable:
        return None
    if role not in ROLES or not is_name(speaker) or not isinstance(values, dict):
        return None
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, Value) or isinstance(value, bool):
            return None
    return Beat(role, speaker, values)
