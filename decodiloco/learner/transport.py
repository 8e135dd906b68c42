"""Carries a learner's words and bytes: follows the tape, speaks to the inbox, beats, up- and
downloads. Lives on the network thread; decides nothing that the core does not owe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import aclosing

from decodiloco.errors import Orphaned, StoreDenied, StoreUnreachable
from decodiloco.learner.checkpoint import Raw
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.jobs import CheckpointJob, FetchJob, Job, MomentsJob, Result
from decodiloco.learner.network import Changes, Hands
from decodiloco.learner.waits import Waits
from decodiloco.places import Places
from decodiloco.times import (
    HANG_SECONDS,
    JOIN_FETCH_SECONDS_MAX,
    LAST_WORD_SECONDS,
    RESEND_SECONDS,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    SYNCER_TELL_SECONDS,
)
from streams.errors import Corrupt, PermissionDenied, Trouble
from streams.events import LearnerLeft, RoundOpened, Word, learner_of
from streams.parts import Moments
from streams.pulse import Beat
from streams.tape import Tape

UPLOADS_AT_ONCE = 4
CORRUPT_READS_MAX = 3
CHECKPOINT_TRIES_MAX = 8
DENIED_TRIES_MAX = 3
READ_BACK = 50


class Transport:
    """The world outside, for one core."""

    def __init__(self, core: LearnerCore, places: Places, region: str, waits: Waits) -> None:
        self.core = core
        self.changes = Changes()
        self.round_heard_seconds = time.monotonic()
        self.store = places.store
        self._places = places
        self._region = region
        self._inbox = places.inboxes[region]
        self.silent_seconds = 0.0
        self.has_farewell_kept = False
        self.waits = waits
        self._last_word_seconds: float = LAST_WORD_SECONDS
        self._answered_seconds = 0.0
        self._hands = Hands(UPLOADS_AT_ONCE, "decodiloco-bytes")

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
            self._hands.shutdown()

    async def catch_up(self) -> None:
        """Until all that the tape held for this learner at this moment is folded.

        Raises Orphaned when nothing more of the tape is given for `orphan_seconds_max`.
        """
        position = await last_position_for(self._places.tape, self.core.state.learner)

        def caught_up() -> bool:
            return self.core.state.position >= position

        if not await self.changes.wait(caught_up, SYNCER_TELL_SECONDS):
            seconds_max = self.core.run.times.orphan_seconds_max
            self.waits.begin("tape", f"it ends at {position}, and is read before this life begins")
            read = self.core.state.position
            while not await self.changes.wait(caught_up, seconds_max):
                if self.core.state.position == read:
                    raise Orphaned(
                        f"run {self.core.run.name}: learner {self.core.state.learner} has read its "
                        f"tape up to {read} of {position}, and no further in {seconds_max:.0f} s; "
                        "see that its NATS server is well, then join again"
                    )
                read = self.core.state.position
        self.waits.end("tape")

    async def join(self, fingerprint: str, moments: Moments) -> None:
        """Says that this life begins, until the tape has it, or the run is closed.

        The word is made anew each time, since a late word of the last life moves the counters.
        """

        def settled() -> bool:
            return bool(self.core.state.incarnation or self.core.state.closed)

        deadline = time.monotonic() + self.core.run.times.orphan_seconds_max
        while not settled():
            await self._say_once(self.core.join_word(self._region, fingerprint, moments))
            if not await self.changes.wait(settled, SYNCER_TELL_SECONDS):
                self.waits.begin("syncer", self._why_not_admitted())
                await self.changes.wait(settled, RESEND_SECONDS - SYNCER_TELL_SECONDS)
            if time.monotonic() > deadline:
                raise Orphaned(
                    f"run {self.core.run.name}: learner {self.core.state.learner} was not "
                    f"admitted for {self.core.run.times.orphan_seconds_max:.0f} s "
                    f"({self._why_not_admitted()})"
                )
        state = self.core.state
        if state.incarnation:
            self.waits.end("syncer")
            self.waits.info("joined", position=state.incarnation, learner_step=state.learner_step)

    def _why_not_admitted(self) -> str:
        return self.core.state.complaint or (
            "no syncer has taken up its word yet; start one with `decodiloco syncer --config ...`"
        )

    async def fetch(self, jobs: list[FetchJob] | list[MomentsJob]) -> list[Result | Raw | None]:
        """The results of several fetches, in order; trouble is ridden over for a minute."""
        tries = [self._tried(job, lambda: True, JOIN_FETCH_SECONDS_MAX) for job in jobs]
        return list(await asyncio.gather(*tries))

    async def _follow(self) -> None:
        learner = self.core.state.learner
        async with aclosing(self._places.tape.follow(0, learner)) as envelopes:
            async for envelope in envelopes:
                self.silent_seconds = 0.0
                if isinstance(envelope.event, RoundOpened):
                    self.round_heard_seconds = time.monotonic()
                self.core.fold(envelope)
                self.changes.ring()

    async def _listen(self) -> None:
        async with aclosing(self._places.pulse.listen()) as beats:
            async for beat in beats:
                if beat.role == "syncer":
                    self.silent_seconds = 0.0
                    if self.core.state.incarnation:
                        self.waits.end("syncer")

    async def _beat(self) -> None:
        """Heartbeats, once joined; and the watch over the run's own silence.

        Silence is counted while we are awake only: after a pause of our own we listen first. Once
        joined it is for the thread that trains to stop for it, between two steps.
        """
        times = self.core.run.times
        last_seconds = time.monotonic()
        while True:
            passed_seconds = time.monotonic() - last_seconds
            last_seconds += passed_seconds
            self.silent_seconds += min(passed_seconds, 2 * times.heartbeat_seconds)
            state = self.core.state
            if not state.incarnation and self.silent_seconds > times.orphan_seconds_max:
                raise Orphaned(self.silence())
            if self.silent_seconds > times.lost_seconds and state.incarnation:
                why = "neither a syncer nor the tape was heard; training goes on meanwhile"
                self.waits.begin("syncer", f"{why}, for {times.orphan_seconds_max:.0f} s at most")
            if state.incarnation and not (state.left or state.ended_by):
                values: dict[str, int | float | str] = {
                    "incarnation": state.incarnation,
                    "learner_step": state.learner_step,
                    "tokens_trained": state.tokens_trained,
                    "step_seconds": state.step_seconds or 0.0,
                    "loss": state.loss,
                    "waiting": self.waits.longest(),
                }
                await self._places.pulse.beat(Beat("learner", state.learner, values))
            await asyncio.sleep(times.heartbeat_seconds)

    def silence(self) -> str:
        """For how long nothing was heard, and what to do about it."""
        return (
            f"run {self.core.run.name}: nothing was heard for {self.silent_seconds:.0f} s; "
            "see that its NATS server and a syncer are running, then join again"
        )

    async def _speak(self) -> None:
        """One word at a time, said again until the tape has it or a refusal of it.

        Who leaves does not wait for the tape before the farewell: the inbox keeps the order, and
        whoever leads next finds it there.
        """
        core = self.core
        while True:
            word = core.say()
            if word is None:
                await self.changes.wait(core.has_word)
                continue
            while core.state.in_flight == word and not core.state.ended_by:
                is_kept = await self._say_once(word)
                if await self._settled(word):
                    self.waits.end("tape")
                elif is_kept and self._hurries(word):
                    self._last_word_seconds = 0.0  # nobody reads them: what follows does not wait
                    core.let_go()
                elif is_kept:
                    self.waits.begin("tape", f"it has no {word.kind} of ours yet{self._blamed()}")

    async def _settled(self, word: Word) -> bool:
        """Whether the tape has the word in flight, or a refusal of it, after a while."""
        core = self.core

        def is_settled() -> bool:
            return core.state.in_flight is None

        def is_enough() -> bool:
            return is_settled() or self._hurries(word)

        await self.changes.wait(is_enough, RESEND_SECONDS)
        return is_settled() or (
            self._hurries(word) and await self.changes.wait(is_settled, self._last_word_seconds)
        )

    def _hurries(self, word: Word) -> bool:
        """Whether this word only delays a farewell."""
        return self.core.state.leaving is not None and not isinstance(word, LearnerLeft)

    def _blamed(self) -> str:
        complaint = self.core.state.complaint
        return f" ({complaint})" if complaint else ""

    async def _say_once(self, word: Word) -> bool:
        """Whether the inbox has the word."""
        try:
            await self._inbox.say(word)
        except PermissionDenied:
            raise
        except Trouble as error:
            self.waits.begin("inbox", str(error))
            return False
        self.waits.end("inbox")
        if isinstance(word, LearnerLeft):
            self.has_farewell_kept = True
            self.changes.ring()
        return True

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
        self,
        job: Job | MomentsJob,
        is_wanted: Callable[[], bool],
        patience_seconds: float | None = None,
    ) -> Result | Raw | None:
        """A job's result; None once it is given up. Trouble is tried again, slower each time.

        Bytes that are wrong or missing are read again a few times, then raised; so is a store
        that does not allow this, and any trouble once patience is at its end.
        """
        loop = asyncio.get_running_loop()
        give_up_seconds = None if patience_seconds is None else loop.time() + patience_seconds
        pause_seconds: float = RETRY_SECONDS_MIN
        tries = 0
        while is_wanted():
            tries += 1
            try:
                result = await self._carried(job, patience_seconds is not None)
                self.waits.end("store")
                return result
            except Corrupt:
                if tries >= CORRUPT_READS_MAX:
                    raise
            except Trouble as error:
                self.waits.begin("store", str(error))
                if isinstance(error, StoreDenied) and tries >= DENIED_TRIES_MAX:
                    raise
                if give_up_seconds is not None and loop.time() > give_up_seconds:
                    raise
                if isinstance(job, CheckpointJob) and tries >= CHECKPOINT_TRIES_MAX:
                    return None
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)
        return None

    async def _carried(self, job: Job | MomentsJob, is_joining: bool) -> Result | Raw:
        """A job done by a hand. A store that hangs is told; a joiner does not wait for it for ever.

        Raises StoreUnreachable when a joiner gets no answer in `orphan_seconds_max`: neither to
        this job nor to those before it, for which it may wait.
        """
        begun_seconds = time.monotonic()
        seconds_max = self.core.run.times.orphan_seconds_max
        submitted: Future[Result | Raw] = self._hands.submit(job.run_on, self.store)
        running = asyncio.wrap_future(submitted)
        running.add_done_callback(self._answered)
        while not (await asyncio.wait({running}, timeout=HANG_SECONDS))[0]:
            self.waits.begin("store", f"{job.what} takes longer than {HANG_SECONDS:.0f} s")
            since_seconds = max(begun_seconds, self._answered_seconds)
            if is_joining and time.monotonic() - since_seconds > seconds_max:
                raise StoreUnreachable(
                    f"store {self.store.url}: {job.what} had no end in {seconds_max:.0f} s"
                )
        return running.result()

    def _answered(self, future: asyncio.Future[Result | Raw]) -> None:
        """What a call comes to when nobody waits for it any more is no news for asyncio's log."""
        self._answered_seconds = time.monotonic()
        if not future.cancelled():
            future.exception()


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
