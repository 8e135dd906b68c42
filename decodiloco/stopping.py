"""Asynchronous work run to its end, or until somebody asks the process to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from streams.errors import Failure


def run_until_stopped(
    work: Coroutine[Any, Any, object], on_stop: Callable[[], None] | None = None
) -> bool:
    """Runs the work; False when SIGINT or SIGTERM cancelled it before its end.

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
                if on_stop is not None:
                    on_stop()
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
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
