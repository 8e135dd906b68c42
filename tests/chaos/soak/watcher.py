"""Reads what a run says, over a connection that no fault touches but those of the server itself.

Keeps the tape's facts and the last letters of the inbox; says nothing and decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing

from streams.envelope import Envelope
from streams.events import FragmentMerged, RoundOpened, RunClosed, SyncerTookOver
from streams.inbox import Letter
from streams.jetstream import Connection
from tests.chaos.soak.settings import REGION

LETTERS_MAX = 4000


class Watcher:
    """A follower of one run's tape and inbox."""

    def __init__(self, connection: Connection, run: str) -> None:
        self._tape = connection.tape(run)
        self._inbox = connection.inbox(run, REGION)
        self.letters: deque[Letter] = deque(maxlen=LETTERS_MAX)
        self.leader = ""
        self.step = 0
        self.tokens = 0
        self.position = 0
        self.closed: RunClosed | None = None
        self.merged_at: list[float] = []

    async def follow(self) -> None:
        """The tape, until cancelled."""
        async with aclosing(self._tape.follow(0)) as facts:
            async for envelope in facts:
                self._hear(envelope)

    async def listen(self) -> None:
        """The inbox, until cancelled."""
        async with aclosing(self._inbox.follow(0)) as letters:
            async for letter in letters:
                self.letters.append(letter)

    async def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Whether it came to hold within so long."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    def _hear(self, envelope: Envelope) -> None:
        self.position = envelope.position
        match envelope.event:
            case SyncerTookOver(syncer=syncer):
                self.leader = syncer
            case RoundOpened(tokens=tokens):
                self.tokens = tokens
            case FragmentMerged(step=step):
                self.step = step
                self.merged_at.append(time.monotonic())
            case RunClosed() as closed:
                self.closed = closed
            case _:
                pass
