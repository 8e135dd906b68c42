"""Background threads, so that training never waits: one with an event loop, some for bytes.

All are daemons: whatever hangs in them, the process can end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from decodiloco.times import NETWORK_STOP_SECONDS

P = ParamSpec("P")
T = TypeVar("T")


class NetworkThread:
    """An event loop in a daemon thread. Stopped once, by `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Runs a coroutine there and waits for its result here, or raises TimeoutError."""
        future = self.start(coroutine)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self) -> None:
        """Cancels what still runs there and ends the thread."""
        if self._thread.is_alive():
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(NETWORK_STOP_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=NETWORK_STOP_SECONDS / 2))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


class Hands(Executor):
    """Threads for calls that block. Those of a ThreadPoolExecutor would hold up the process's end
    for as long as a call hangs.
    """

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._count = count
        self._is_over = False
        for number in range(count):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As the port says; a call waits until a hand is free."""
        future: Future[T] = Future()

        def call() -> None:
            if self._is_over:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # whoever waits for the result is told
                future.set_exception(error)

        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No further call begins. The threads end once their calls do; nobody waits for that."""
        self._is_over = True
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class Changes:
    """Wakes those on one event loop who wait for something to become true."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Something may have changed. On the event loop's own thread only."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until a condition holds, or for so long; whether it holds."""
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        while True:
            event = self._event  # taken before the look, so that no ring is missed
            if until():
                return True
            try:
                async with asyncio.timeout_at(deadline):
                    await event.wait()
            except TimeoutError:
                return until()
