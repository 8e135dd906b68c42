"""Carries a learner's words and bytes: follows the tape, speaks to the inbox, beats, up- and
downloads. Lives on the network thread; decides nothing that the core does not owe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from decodiloco.errors import Orphaned, StoreDenied
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.jobs import CheckpointJob, FetchJob, Job, Result
from decodiloco.learner.network import Changes
from decodiloco.learner.waits import Waits
from decodiloco.places import Places
from streams.errors import Corrupt, PermissionDenied, Trouble
from streams.events import Moments, RoundOpened, Word, learner_of
from streams.pulse import Beat
from streams.tape import Tape

RESEND_SECONDS = 5.0
TELL_SECONDS = 2.0
UPLOADS_AT_ONCE = 4
RETRY_SECONDS_MIN = 0.25
RETRY_SECONDS_MAX = 8.0
CORRUPT_READS_MAX = 3
CHECKPOINT_TRIES_MAX = 8
DENIED_TRIES_MAX = 3
JOIN_FETCH_SECONDS_MAX = 60.0
READ_BACK = 50


class Transport:
    """The world outside, for one core."""

    def __init__(self, core: LearnerCore, places: Places, region: str) -> None:
        self.core = core
        self.changes = Changes()
        self.round_heard_seconds = time.monotonic()
        self.store = places.store
        self._places = places
        self._region = region
        self._inbox = places.inboxes[region]
        self._heard_seconds = time.monotonic()
        self._waits = Waits(core.run.name, core.state.learner)
        self._pool = ThreadPoolExecutor(UPLOADS_AT_ONCE, thread_name_prefix="decodiloco-bytes")

    async def run(self) -> None:
        """Until cancelled. Raises what cannot be ridden over: a broken tape, silence too long."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._listen())
                group.create_task(self._beat())
                group.create_task(self._speak())
                group.create_task(self._work(group))
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def catch_up(self) -> None:
        """Until all that the tape held for this learner at this moment is folded."""
        position = await last_position_for(self._places.tape, self.core.state.learner)
        await self.changes.wait(lambda: self.core.state.position >= position)

    async def join(self, fingerprint: str, moments: Moments) -> None:
        """Says that this life begins, until the tape has it, or the run is closed.

        The word is made anew each time, since a late word of the last life moves the counters.
        """

        def settled() -> bool:
            return bool(self.core.state.incarnation or self.core.state.closed)

        deadline = time.monotonic() + self.core.run.times.orphan_seconds_max
        while not settled():
            await self._say_once(self.core.join_word(self._region, fingerprint, moments))
            if not await self.changes.wait(settled, TELL_SECONDS):
                self._waits.begin("syncer", self._why_not_admitted())
                await self.changes.wait(settled, RESEND_SECONDS - TELL_SECONDS)
            if time.monotonic() > deadline:
                raise Orphaned(
                    f"run {self.core.run.name}: learner {self.core.state.learner} was not "
                    f"admitted for {self.core.run.times.orphan_seconds_max:.0f} s "
                    f"({self._why_not_admitted()})"
                )
        state = self.core.state
        if state.incarnation:
            self._waits.end("syncer")
            self._waits.info("joined", position=state.incarnation, learner_step=state.learner_step)

    def _why_not_admitted(self) -> str:
        return self.core.state.complaint or (
            "no syncer has taken up its word yet; start one with `decodiloco syncer --config ...`"
        )

    async def fetch(self, jobs: list[FetchJob]) -> list[Result | None]:
        """The results of several fetches, in order; trouble is ridden over for a minute."""
        tries = [self._tried(job, lambda: True, JOIN_FETCH_SECONDS_MAX) for job in jobs]
        return list(await asyncio.gather(*tries))

    async def _follow(self) -> None:
        learner = self.core.state.learner
        async with aclosing(self._places.tape.follow(0, learner)) as envelopes:
            async for envelope in envelopes:
                self._heard_seconds = time.monotonic()
                if isinstance(envelope.event, RoundOpened):
                    self.round_heard_seconds = self._heard_seconds
                self.core.fold(envelope)
                self.changes.ring()

    async def _listen(self) -> None:
        async with aclosing(self._places.pulse.listen()) as beats:
            async for beat in beats:
                if beat.role == "syncer":
                    self._heard_seconds = time.monotonic()
                    if self.core.state.incarnation:
                        self._waits.end("syncer")

    async def _beat(self) -> None:
        """Heartbeats, once joined; and the watch over the run's own silence."""
        times = self.core.run.times
        while True:
            silent_seconds = time.monotonic() - self._heard_seconds
            if silent_seconds > times.orphan_seconds_max:
                raise Orphaned(
                    f"run {self.core.run.name}: nothing was heard for {silent_seconds:.0f} s; "
                    "see that its NATS server and a syncer are running, then join again"
                )
            state = self.core.state
            if silent_seconds > times.lost_seconds and state.incarnation:
                why = "neither a syncer nor the tape was heard; training goes on meanwhile"
                self._waits.begin("syncer", why)
            if state.incarnation and not state.left:
                values: dict[str, int | float | str] = {
                    "incarnation": state.incarnation,
                    "learner_step": state.learner_step,
                    "tokens_trained": state.tokens_trained,
                    "step_seconds": state.step_seconds or 0.0,
                    "loss": state.loss,
                    "waiting": self._waits.longest(),
                }
                await self._places.pulse.beat(Beat("learner", state.learner, values))
            await asyncio.sleep(times.heartbeat_seconds)

    async def _speak(self) -> None:
        """One word at a time, said again until the tape has it or a refusal of it."""
        core = self.core
        while True:
            word = core.say()
            if word is None:
                await self.changes.wait(core.has_word)
                continue
            while core.state.in_flight == word and not core.state.ended_by:
                await self._say_once(word)
                await self.changes.wait(lambda: core.state.in_flight is None, RESEND_SECONDS)

    async def _say_once(self, word: Word) -> None:
        try:
            await self._inbox.say(word)
            self._waits.end("inbox")
        except PermissionDenied:
            raise
        except Trouble as error:
            self._waits.begin("inbox", str(error))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            for job in self.core.jobs():
                group.create_task(self._carry_out(job))
            await self.changes.wait(self.core.has_jobs)

    async def _carry_out(self, job: Job) -> None:
        started_seconds = time.monotonic()
        result = await self._tried(job, lambda: self.core.is_wanted(job))
        if result is None:
            self.core.failed(job)
        else:
            self.core.done(job, result, time.monotonic() - started_seconds)
        self.changes.ring()

    async def _tried(
        self, job: Job, is_wanted: Callable[[], bool], patience_seconds: float | None = None
    ) -> Result | None:
        """A job's result; None once it is given up. Trouble is tried again, slower each time.

        Bytes that are wrong or missing are read again a few times, then raised; so is a store
        that does not allow this, and any trouble once patience is at its end.
        """
        loop = asyncio.get_running_loop()
        give_up_seconds = None if patience_seconds is None else loop.time() + patience_seconds
        pause_seconds = RETRY_SECONDS_MIN
        tries = 0
        while is_wanted():
            tries += 1
            try:
                result: Result = await loop.run_in_executor(self._pool, job.run_on, self.store)
                self._waits.end("store")
                return result
            except Corrupt:
                if tries >= CORRUPT_READS_MAX:
                    raise
            except Trouble as error:
                self._waits.begin("store", str(error))
                if isinstance(error, StoreDenied) and tries >= DENIED_TRIES_MAX:
                    raise
                if give_up_seconds is not None and loop.time() > give_up_seconds:
                    raise
                if isinstance(job, CheckpointJob) and tries >= CHECKPOINT_TRIES_MAX:
                    return None
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)
        return None


async def last_position_for(tape: Tape, learner: str) -> int:
    """The newest position that a follower for this learner is given; 0 if there is none."""
    last = await tape.last()
    while last > 0:
        after = max(0, last - READ_BACK)
        for envelope in reversed(await tape.read(after, last - after)):
            if learner_of(envelope.event) in (None, learner):
                return envelope.position
        last = after
    return 0
