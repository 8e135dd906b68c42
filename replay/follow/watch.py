"""The loop of a shadow: records in, checks carried out in threads, results in the tape's order.

Knows the tape's port, not the server behind it. Reading waits while checks are behind, so that
memory is bounded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass

from decodiloco.errors import StoreUnreachable
from decodiloco.merge.self_test import self_test
from replay.blob_checks import Check
from replay.errors import BlobGone
from replay.follow.lag import Lag
from replay.follow.shadow import Owed, Shadow
from replay.follow.told import Watched, alarm_of, lag_line
from replay.reach import EVERYTHING
from replay.times import (
    BEHIND_SECONDS,
    LAG_SECONDS,
    QUIET_SECONDS,
    SHADOW_STORE_SECONDS,
    SHADOW_TELL_SECONDS,
)
from replay.verify import AHEAD_MAX, difference
from streams.envelope import Envelope
from streams.errors import Corrupt, ServerUnreachable, Trouble
from streams.events import SyncerTookOver
from streams.tape import BATCH_MAX, Tape

WORK_MAX = 10 * BATCH_MAX


@dataclass(frozen=True, slots=True)
class Voice:
    """How a shadow speaks: notes, and on a terminal also where it is, each LAG_SECONDS."""

    note: Callable[[str], None]
    lag: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """A fact whose checks run."""

    owed: Owed
    futures: tuple[asyncio.Future[tuple[int, int]], ...]

    @property
    def running(self) -> int:
        return sum(not future.done() for future in self.futures)


class Watch:
    """Follows one live run to its close, its first difference, or `stop`.

    Rides over servers and stores that are away, takeovers, and a syncer that is not there.
    """

    def __init__(self, tape: Tape, shadow: Shadow, threads: int, voice: Voice) -> None:
        self.stop = asyncio.Event()
        self.watched = Watched(tape.run, begun=shadow.state.position + 1)
        self.watched.position = shadow.state.position
        self._tape = tape
        self._shadow = shadow
        self._room = AHEAD_MAX * threads
        self._voice = voice
        self._arrivals: asyncio.Queue[Envelope] = asyncio.Queue(BATCH_MAX)
        self._bell = asyncio.Event()
        self._work: deque[_Work] = deque()
        self._left: list[_Work] = []
        self._differs: tuple[Corrupt, Envelope | None] | None = None
        self._over = threading.Event()
        self._silent = False
        self._lag = Lag()
        self._pool = ThreadPoolExecutor(threads, "shadow", initializer=self_test)

    async def run(self) -> Watched:
        """Raises Trouble where the tape cannot be read at all, RulesUnknown for unknown rules."""
        reader = asyncio.create_task(self._read(), name="follow the tape")
        tasks = [
            reader,
            asyncio.create_task(self._measure(), name="measure the lag"),
            asyncio.create_task(self.stop.wait(), name="wait to be stopped"),
        ]
        for task in tasks:
            task.add_done_callback(lambda _: self._bell.set())
        try:
            await self._check(reader)
        finally:
            self._over.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
            left = [future for work in (*self._work, *self._left) for future in work.futures]
            await asyncio.gather(*left, return_exceptions=True)
        return self.watched

    async def _check(self, reader: asyncio.Task[None]) -> None:
        heard_seconds = time.monotonic()
        while not self.stop.is_set():
            self._bell.clear()
            self._settle()
            if self._differs is not None:
                if not self._work:  # what stands before it agrees
                    await self._check_reach(*self._differs)
                    self._alarm(*self._differs)
                    return
            elif not self._arrivals.empty() and self._has_room():
                heard_seconds = time.monotonic()
                await self._take()
                continue
            elif reader.done() and self._arrivals.empty() and not self._work:
                self._read_out(reader)
                continue
            quiet_seconds = time.monotonic() - heard_seconds
            if self._is_over(quiet_seconds):
                self._close()
                return
            await self._rung(QUIET_SECONDS - quiet_seconds)

    def _has_room(self) -> bool:
        """Whether more may be begun: checks that run, and facts that wait for them, are few."""
        running = sum(work.running for work in self._work)
        return running < self._room and len(self._work) < WORK_MAX

    async def _take(self) -> None:
        """Folds what has come, and starts its checks."""
        records = [self._arrivals.get_nowait()]
        while not self._arrivals.empty() and len(records) < BATCH_MAX:
            records.append(self._arrivals.get_nowait())
        told = await asyncio.to_thread(self._shadow.tell, records)
        self.watched.unjudged = self._shadow.unjudged
        self._work.extend(_Work(owed, tuple(map(self._start, owed.checks))) for owed in told.owed)
        if told.differs is not None:
            self._differs = told.differs, told.at

    def _start(self, check: Check) -> asyncio.Future[tuple[int, int]]:
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._carried_out, check)
        future.add_done_callback(lambda _: self._bell.set())
        return future

    def _carried_out(self, check: Check) -> tuple[int, int]:
        """Merges and bytes that were checked; while the store is away, tries again."""
        while True:
            try:
                size_bytes = check.run()
            except StoreUnreachable as error:
                if not self._silent:
                    self._silent = True
                    self._voice.note(f"waits for the store: {error}")
                if self._over.wait(SHADOW_STORE_SECONDS):
                    raise
                continue
            if self._silent:
                self._silent = False
                self._voice.note("the store answers again")
            return int(check.is_merge), size_bytes

    def _settle(self) -> None:
        """Takes the outcomes of the first facts, as far as all of their checks are done."""
        watched = self.watched
        while self._work and not self._work[0].running:
            work = self._work[0]
            try:
                for future in work.futures:
                    merges, size_bytes = future.result()
                    watched.merges_checked += merges
                    watched.bytes_checked += size_bytes
            except Corrupt as error:
                self._differs = error, work.owed.envelope
                self._left.extend(self._work)
                self._work.clear()
                return
            self._work.popleft()
            watched.events += 1
            watched.takeovers += isinstance(work.owed.envelope.event, SyncerTookOver)
            watched.position, watched.step = work.owed.envelope.position, work.owed.step

    def _read_out(self, reader: asyncio.Task[None]) -> None:
        """The tape can be followed no further: raises why, or notes what is wrong with it."""
        try:
            reader.result()
        except Corrupt as error:
            self._differs = error, None
            return
        raise AssertionError("a follower ended by itself")

    async def _check_reach(self, error: Corrupt, envelope: Envelope | None) -> None:
        """Raises BeyondHorizon when the run has let go of bytes that were not checked yet.

        What differs though it could be read is a lie, wherever the horizon is by now.
        """
        if envelope is None or not isinstance(error, BlobGone):
            return
        reach = EVERYTHING
        with suppress(Trouble, Corrupt):
            after = envelope.position
            while records := await self._tape.read(after):
                for record in records:
                    after, reach = record.position, reach.then(record)
        if not reach.is_whole(envelope.position):
            told = f"position {envelope.position}, which was to be checked,"
            raise reach.beyond(self.watched.run, told) from error

    def _is_over(self, quiet_seconds: float) -> bool:
        """Whether the run is closed, and nobody is left or has said anything for a while.

        After RunClosed the learners still say with which model they leave.
        """
        state = self._shadow.state
        if state.closed is None or self._work or not self._arrivals.empty():
            return False
        return not state.live or quiet_seconds >= QUIET_SECONDS

    def _close(self) -> None:
        try:
            self._shadow.settle()
        except Corrupt as error:
            self._alarm(error, None)
            return
        self.watched.ended = "closed"

    def _alarm(self, error: Corrupt, envelope: Envelope | None) -> None:
        found = difference(error)
        where = envelope or found.position
        alarm = alarm_of(self.watched.run, found.what, where, found.key, time.time())
        self.watched.alarm = alarm
        self.watched.ended = "alarm"

    async def _rung(self, seconds: float) -> None:
        """Waits for anything new; once the run is closed and checked, at most `seconds`."""
        ends = self._shadow.state.closed is not None and not self._work
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.01, seconds) if ends else None):
                await self._bell.wait()

    async def _read(self) -> None:
        async with aclosing(self._tape.follow(self._shadow.state.position)) as records:
            async for envelope in records:
                await self._arrivals.put(envelope)
                self._bell.set()

    async def _measure(self) -> None:
        """Tells how far behind the shadow is, and once when it falls behind or has caught up."""
        told_seconds, is_late, is_away = time.monotonic(), False, False
        while True:
            try:
                last = await self._tape.last()
            except ServerUnreachable as error:
                if not is_away:
                    self._voice.note(f"waits for the server: {error}")
                is_away = True
            else:
                if is_away:
                    self._voice.note("the server answers again")
                is_away = False
                self._lag.saw(last, time.monotonic())
            now_seconds = time.monotonic()
            facts, seconds = self._lag.behind(self.watched.position, now_seconds)
            self.watched.lag_facts_max = max(self.watched.lag_facts_max, facts)
            self.watched.lag_seconds_max = max(self.watched.lag_seconds_max, seconds)
            line = lag_line(self.watched, facts, seconds)
            if self._voice.lag is not None:
                self._voice.lag(line)
            turned = seconds < LAG_SECONDS if is_late else seconds > BEHIND_SECONDS
            if turned:
                is_late = not is_late
                self._voice.note(("falls behind: " if is_late else "has caught up: ") + line)
            elif self._voice.lag is None and now_seconds - told_seconds >= SHADOW_TELL_SECONDS:
                told_seconds = now_seconds
                self._voice.note(line)
            await asyncio.sleep(LAG_SECONDS)
