"""The facts of a live run, printed as they come: `replay show` without an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress

from replay.follow.beginning import first_of, whole_tape
from replay.follow.stopping import CLIENT, stop_on_signal
from replay.place import Place
from replay.show import Teller, Wanted, Widths, heading, plain
from replay.times import QUIET_SECONDS
from streams.envelope import Envelope
from streams.events import LearnerJoined, RunClosed
from streams.jetstream import connect
from streams.tape import BATCH_MAX, Tape

BACK_MAX = 5 * BATCH_MAX
"""Records before the first that is shown, which tell whose the offers are that it names."""


class Printed:
    """Lines on stdout, under a heading that is said again whenever a learner is new."""

    def __init__(self, run: str, first: int) -> None:
        self.first = first
        self.position = 0
        self.closed = False
        self._teller = Teller(Wanted(first=first))
        self._names: tuple[str, ...] = ()
        self._headed: tuple[str, ...] | None = None

    def show(self, envelope: Envelope) -> None:
        """Prints one fact, if it is not before the first."""
        event = envelope.event
        self.position = envelope.position
        self.closed = self.closed or isinstance(event, RunClosed)
        if isinstance(event, LearnerJoined):
            self._names = tuple(sorted({*self._names, event.learner}))
        for line in self._teller.lines([envelope]):
            self._names = tuple(sorted({*self._names, *line.cells}))
            if self._headed != self._names:
                print(heading(self._names, False, Widths()))
                self._headed = self._names
            print(plain(line, self._names, Widths()), flush=True)


async def show_live(place: Place, asked: str) -> Mapping[str, object]:
    """Prints until the run is closed and quiet, or SIGTERM; what `--json` gives."""
    assert place.url is not None
    connection = await connect(place.url, CLIENT)
    try:
        tape = whole_tape(connection, place.run)
        first = await first_of(tape, asked)
        printed = Printed(place.run, first)
        stop = asyncio.Event()
        stop_on_signal(stop)
        printing = asyncio.create_task(_print(tape, printed))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({printing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (printing, stopped):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            elif task is printing:
                printing.result()
    finally:
        await connection.close()
    ended = "closed" if printed.closed else "stopped"
    return {
        "run": place.run,
        "ended": ended,
        "from": first,
        "position": max(printed.position, first - 1),
    }


async def _print(tape: Tape, printed: Printed) -> None:
    after = max(0, printed.first - 1 - BACK_MAX)
    async with aclosing(tape.follow(after)) as records:
        while (envelope := await _next(records, printed.closed)) is not None:
            printed.show(envelope)


async def _next(records: AsyncGenerator[Envelope, None], closed: bool) -> Envelope | None:
    """The next record; None when the run is closed and nothing was said for a while."""
    try:
        async with asyncio.timeout(QUIET_SECONDS if closed else None):
            return await anext(records)
    except TimeoutError:
        return None
