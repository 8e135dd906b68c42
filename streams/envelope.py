"""What stands around each fact on the tape: its number, its parent, who wrote it and when."""

from __future__ import annotations

from dataclasses import dataclass, field

from blake3 import blake3

from streams.events import Event

POSITION_MAX = 2**53


@dataclass(frozen=True)
class Source:
    """Where a fact came from: an inbox (its region), that inbox's life, and the sequence in it."""

    inbox: str
    life: str
    sequence: int


@dataclass(frozen=True)
class Envelope:
    """One record of the tape.

    `previous` is the digest of the record before; `digest` that of this one (blake3 over its
    canonical bytes). `time_seconds` is Unix time for people: no decision reads it.
    """

    position: int
    previous: bytes
    fence: int
    writer: str
    source: Source | None
    time_seconds: float
    event: Event
    digest: bytes = field(default=b"", compare=False, repr=False)


def genesis(run: str) -> bytes:
    """The digest that the first record of a run carries as its parent's."""
    return blake3(b"decodiloco tape 1 " + run.encode()).digest()
