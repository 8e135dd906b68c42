"""Room for merges: so many compute at once, and who waits for bytes gives its room to another."""

from __future__ import annotations

import asyncio
from threading import Event, Semaphore
from types import TracebackType

MERGES_AT_ONCE = 2  # that compute in one process, a syncer's or a merger's
WAITING_MAX = 64  # jobs that may wait for bytes at once


class Room:
    """Room for so many jobs that compute. Who waits inside gives its room to another meanwhile."""

    def __init__(self, jobs: int) -> None:
        self._free = Semaphore(jobs)
        self._closed = Event()

    def __enter__(self) -> Room:
        self._free.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._free.release()

    def close(self) -> None:
        """Nobody waits inside any more: whoever does is cancelled."""
        self._closed.set()

    def check(self) -> None:
        """Raises CancelledError once the room is closed: for work that begins again and again."""
        if self._closed.is_set():
            raise asyncio.CancelledError

    def sleep(self, seconds: float) -> None:
        """Waits outside. Raises CancelledError once the room is closed."""
        self._free.release()
        closed = self._closed.wait(seconds)
        self._free.acquire()
        if closed:
            raise asyncio.CancelledError
