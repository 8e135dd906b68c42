"""The process behind `replay record`: a connection, the signals that end it, one recording."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from replay.place import find_live
from replay.record import Recorded, Voice, record, record_following
from streams.jetstream import connect

CLIENT = "replay record"


def record_place(run: str, path: Path, follow: bool, voice: Voice) -> Recorded:
    """Records a live run into a tape file; with `follow` until it is closed or we are told to end.

    Raises what `find_live` and the server raise; the file then stays unsealed, to be continued.
    """
    place = find_live(run)
    assert place.url is not None
    return asyncio.run(_record(place.url, place.run, path, follow, voice))


async def _record(url: str, run: str, path: Path, follow: bool, voice: Voice) -> Recorded:
    stop = asyncio.Event()
    if follow:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    connection = await connect(url, CLIENT)
    try:
        tape = connection.tape(run)
        if follow:
            return await record_following(tape, path, stop, voice)
        return await record(tape, path, voice)
    finally:
        await connection.close()
