"""Asynchronous work run to its end, or until somebody asks the process to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from streams.errors import Failure

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """The signals that ask this process to stop: SIGHUP, a closed terminal, not under `nohup`."""
    deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPS if number != signal.SIGHUP or not deaf]


def run_until_stopped(
    work: Coroutine[Any, Any, object], on_stop: Callable[[], None] | None = None
) -> bool:
    """Runs the work; False when a signal of STOPS cancelled it before its end.

    Only the first signal counts: a second one must not cut the stopping short. Of a task
    group's failures the first is raised.
    """
    stopped = False

    async def guarded() -> None:
        task = asyncio.ensure_future(work)

        def stop() -> None:
            nonlocal stopped
            if not stopped:
                stopped = True
                task.cancel()
                if on_stop is not None:
                    with suppress(OSError):  # the terminal that it would tell may be gone
                        on_stop()

        for number in heeded():
            asyncio.get_running_loop().add_signal_handler(number, stop)
        try:
            await task
        except asyncio.CancelledError:
            if not stopped:
                raise

    try:
        asyncio.run(guarded())
    except* Failure as group:
        raise first_of(group) from None
    return not stopped


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group, however deep it lies."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
