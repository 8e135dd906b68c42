"""`decodiloco status`: a run folded from its tape and listened to for a moment, then told."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing

from decodiloco.config import Times
from decodiloco.status_view import Followed, Report, followed, lines_of, report_of
from decodiloco.times import REFRESH_SECONDS, listen_seconds, silent_seconds
from decodiloco.visit import Address, Visit, records_to, visited
from streams.pulse import Beat


class Heard:
    """The newest heartbeat of each speaker, forgotten once it is old."""

    def __init__(self, times: Times) -> None:
        self._silent_seconds = silent_seconds(times)
        self._beats: dict[str, tuple[float, Beat]] = {}

    async def listen(self, visit: Visit) -> None:
        """Listens until it is cancelled."""
        async with aclosing(visit.pulse.listen()) as beats:
            async for beat in beats:
                self._beats[f"{beat.role}/{beat.speaker}"] = (time.monotonic(), beat)

    def newest(self) -> dict[str, Beat]:
        """The beats of all who are not silent."""
        now = time.monotonic()
        return {
            key: beat
            for key, (heard_seconds, beat) in sorted(self._beats.items())
            if now - heard_seconds <= self._silent_seconds
        }


async def status(address: Address) -> Report:
    """The status of a run now."""
    async with visited(address, "status") as visit:
        told, heard = followed(visit.opening), Heard(visit.opening.run.times)
        listening = asyncio.create_task(heard.listen(visit))
        try:
            await asyncio.sleep(listen_seconds(visit.opening.run.times))
            await _catch_up(visit, told)
            return report_of(told, heard.newest(), time.time())
        finally:
            listening.cancel()


async def watch(address: Address, as_json: bool) -> None:
    """Shows the status again each second until the run is closed or somebody stops it.

    With `as_json` one object a line is printed instead.
    """
    async with visited(address, "status") as visit:
        told, heard = followed(visit.opening), Heard(visit.opening.run.times)
        listening = asyncio.create_task(heard.listen(visit))
        try:
            await asyncio.sleep(listen_seconds(visit.opening.run.times))
            await _show(visit, told, heard, as_json)
        finally:
            listening.cancel()


async def _show(visit: Visit, told: Followed, heard: Heard, as_json: bool) -> None:
    from rich.console import Console  # once, without a screen, it is not needed
    from rich.live import Live
    from rich.text import Text

    console = Console()
    is_screen = console.is_terminal and not console.is_dumb_terminal and not as_json
    with Live(console=console, auto_refresh=False) if is_screen else _Plain() as live:
        while True:
            await _catch_up(visit, told)
            report = report_of(told, heard.newest(), time.time())
            text = json.dumps(report) if as_json else "\n".join(lines_of(report))
            if isinstance(live, _Plain):
                print(text, flush=True)
            else:
                live.update(Text(text), refresh=True)
            if told.state.closed is not None and not told.state.live:
                return
            await asyncio.sleep(REFRESH_SECONDS)


async def _catch_up(visit: Visit, told: Followed) -> None:
    last = await visit.tape.last()
    async for envelope in records_to(visit.tape, last, told.state.position):
        told.hear(envelope)


class _Plain:
    """Stands where the live screen would on something that is no terminal."""

    def __enter__(self) -> _Plain:
        return self

    def __exit__(self, *_: object) -> None:
        return None
