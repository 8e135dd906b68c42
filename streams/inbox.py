"""The inbox as a port: what learners say, per region. Hints, not truth.

A word may come twice, or be no word at all; the syncer's admission decides what becomes a fact.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from streams.envelope import Source
from streams.events import Word


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as it lies in an inbox: where from, under which id and kind, its raw bytes."""

    source: Source
    speaker: str
    kind: str
    payload: bytes


class Inbox(Protocol):
    """The inbox of one region of a run."""

    run: str
    region: str

    async def life(self) -> str:
        """A random id given when the stream was made: a stream made again has another."""
        ...

    async def say(self, word: Word) -> int:
        """Leaves a word, durably; its sequence. Raises Trouble when it may not have arrived."""
        ...

    def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        """Letters after a sequence as they come, without end, in order, without a gap."""
        ...

    async def close(self) -> None: ...
