"""How a follower is told to stop: in good order, by the signals that all our commands heed."""

from __future__ import annotations

import asyncio

from decodiloco.stopping import heeded

CLIENT = "replay follow"


def stop_on_signal(stop: asyncio.Event) -> None:
    """Sets `stop` at the first signal of those that ask this process to end."""
    loop = asyncio.get_running_loop()
    for number in heeded():
        loop.add_signal_handler(number, stop.set)
