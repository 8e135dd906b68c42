"""Who does the pieces of a tensor: the thread that asks, or several others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

AHEAD = 2  # pieces that wait for each thread


class Crew:
    """Who does the pieces: the calling thread, or a pool of others."""

    def __init__(self, pool: ThreadPoolExecutor | None = None, count: int = 0) -> None:
        self._pool = pool
        self._waiting_max = AHEAD * count
        self._waiting: deque[Future[None]] = deque()

    def do(self, work: Callable[[], None]) -> None:
        """Does it now, or has it done; what another thread raises is raised by a later call."""
        if self._pool is None:
            work()
            return
        if len(self._waiting) >= self._waiting_max:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(work))

    def finish(self) -> None:
        """Waits until all is done."""
        while self._waiting:
            self._waiting.popleft().result()
