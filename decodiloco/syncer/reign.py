"""The time during which one syncer leads: letters and asks become batches on the tape.

One batch is in flight at a time, and its facts are folded only as they are read back. The reign
ends when the tape holds a higher fence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from decodiloco.config import Config
from decodiloco.errors import BlobMissing
from decodiloco.merge.room import MERGES_AT_ONCE
from decodiloco.places import Places
from decodiloco.syncer import drafting
from decodiloco.syncer.carrying import Carrier
from decodiloco.syncer.compose import Draft, Pen, composed
from decodiloco.syncer.follower import Follower
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.syncer.mergers import Mergers
from decodiloco.syncer.owed import (
    Ask,
    BeginClosing,
    CloseRun,
    CloseWindow,
    DeclareLost,
    OpenRound,
    owed,
)
from decodiloco.syncer.refusals import Refusals
from decodiloco.syncer.state import State
from decodiloco.telemetry import log
from decodiloco.times import TAPE_PATIENCE_SECONDS
from streams.envelope import Envelope
from streams.errors import ServerUnreachable
from streams.inbox import Inbox, Letter
from streams.tape import BATCH_MAX, Refused, Stored, append_surely

LETTERS_MAX = 1000
SHARE = BATCH_MAX // 4  # of a batch, for what is due, what is done, and what was refused each


class Reign:
    """One syncer leading under one fence."""

    def __init__(
        self, config: Config, places: Places, follower: Follower, hearts: Heartbeats, pen: Pen
    ) -> None:
        self.fence = pen.fence
        self.waits_for = ""
        self._config = config
        self._places = places
        self._follower = follower
        self._hearts = hearts
        self._pen = pen
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._letters: asyncio.Queue[Letter] = asyncio.Queue(LETTERS_MAX)
        self._drafts: list[tuple[str, Draft]] = []  # of long asks, each with the ask's key
        self._refusals = Refusals(self._clock)
        self._reason: dict[str, str] = {}
        self._look_at = self._began

    async def hold(self, over: Callable[[], bool]) -> None:
        """Leads until a higher fence is on the tape, or the run is over."""
        calls, times = self._places.calls, self._config.run.times
        mergers = None if calls is None else Mergers(calls, self._hearts, times, self._clock)
        carrier = Carrier(self._places, MERGES_AT_ONCE, self._finished, mergers)
        readers = [
            asyncio.create_task(self._read(inbox), name=f"read inbox {region}")
            for region, inbox in sorted(self._places.inboxes.items())
        ]
        try:
            while self._follower.state.fence == self.fence and not over():
                await self._turn(carrier)
                await asyncio.sleep(0)  # a flood of letters must not silence the heartbeat
                await self._check(carrier)
                for reader in readers:
                    if reader.done():
                        reader.result()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            await carrier.close()
            self._follower.foresee(())
        state = self._follower.state
        if state.fence != self.fence:
            log("syncer").warning(
                "standing down: another syncer leads now",
                my_fence=self.fence,
                fence=state.fence,
                leader=state.leader,
                position=state.position,
            )

    async def _check(self, carrier: Carrier) -> None:
        """Raises what a job has died of, unless another leads by now.

        After a long pause of ours bytes that we still mean to merge may lie below its horizon.
        """
        try:
            carrier.check()
        except BlobMissing as error:
            log("syncer").warning("bytes are missing; reading on first", error=str(error))
            await self._follower.reached(await self._last())
            if self._follower.state.fence == self.fence:
                raise

    async def _last(self) -> int:
        """The tape's end. A server that is away is waited for, as everywhere here."""
        while True:
            try:
                return await self._places.tape.last()
            except ServerUnreachable as error:
                log("syncer").warning("the tape does not answer", error=str(error))
                await asyncio.sleep(self._config.run.times.heartbeat_seconds)

    async def _turn(self, carrier: Carrier) -> None:
        """Writes what there is to write, or waits until there may be something."""
        state = self._follower.state
        asks = owed(state)
        self._say_why(state, asks)
        carrier.compare(state, tuple(ask for ask in asks if self._is_due(ask)))
        drafts, due_seconds = self._due(asks)
        done = self._drafts[:SHARE]
        del self._drafts[:SHARE]
        drafts += [draft for _, draft in done]
        drafts += self._refusals.due(SHARE)
        while len(drafts) < BATCH_MAX and not self._letters.empty():
            letter = self._letters.get_nowait()
            self._hearts.heard("learner", letter.speaker)
            drafts.append(drafting.from_letter(letter, self._refusals.take))
        if not drafts:
            await self._follower.rung(min(due_seconds, self._config.run.times.heartbeat_seconds))
            return
        await self._write(drafts)
        for key, _ in done:
            carrier.forget(key)

    async def _write(self, drafts: list[Draft]) -> None:
        """One batch, until it stands on the tape or somebody else's record stands there.

        The deciding is repeated after each refusal: by then the state is another.
        """
        while self._follower.state.fence == self.fence:
            foreseen = composed(self._follower.state, drafts, self._pen, time.time())
            if not foreseen:
                return
            batch = [one.envelope for one in foreseen]
            self._follower.foresee(foreseen)
            outcome = await self._appended(batch)
            if isinstance(outcome, Stored):
                await self._follower.reached(outcome.last)
                return
            log("syncer").warning("a batch was refused", fence=self.fence, why=outcome.why)
            await self._follower.reached(batch[0].position)

    async def _appended(self, batch: list[Envelope]) -> Stored | Refused:
        """One append; after the time of a takeover log and heartbeat say that it is waited for."""
        appending = asyncio.ensure_future(
            append_surely(self._places.tape, batch, TAPE_PATIENCE_SECONDS)
        )
        try:
            limit_seconds = self._config.run.times.takeover_seconds
            if not (await asyncio.wait({appending}, timeout=limit_seconds))[0]:
                self.waits_for = "tape"
                log("syncer").warning("waits for the tape", position=batch[0].position)
            outcome = await appending
            if self.waits_for:
                log("syncer").info("the tape answers again", position=batch[0].position)
            return outcome
        finally:
            self.waits_for = ""
            appending.cancel()

    def _due(self, asks: tuple[Ask, ...]) -> tuple[list[Draft], float]:
        """Drafts of the timed asks whose wait is over, and seconds until the next one's is."""
        drafts: list[Draft] = []
        looks, soonest = self._looks_for_silence()
        for ask in asks:
            if not isinstance(ask, (OpenRound, CloseWindow, DeclareLost, BeginClosing)):
                continue
            if isinstance(ask, DeclareLost) and ask.after_seconds and not looks:
                continue
            waited_seconds = self._waited_seconds(ask)
            left = ask.after_seconds - waited_seconds
            if left <= 0:
                waited = drafting.Waited(self._quorum_seconds(ask), waited_seconds)
                drafts.append(drafting.from_timed(ask, waited, self._pen.writer))
            else:
                soonest = min(soonest, left)
        if len(drafts) > SHARE:  # the rest is due at the next turn, too
            del drafts[SHARE:]
            self._look_at = self._clock()
        return drafts, soonest

    def _looks_for_silence(self) -> tuple[bool, float]:
        """Whether silent learners are looked for now, and seconds until the next look.

        There may be hundreds to look at, and turns for each word of theirs.
        """
        heartbeat_seconds, now = self._config.run.times.heartbeat_seconds, self._clock()
        if now < self._look_at:
            return False, self._look_at - now
        self._look_at = now + heartbeat_seconds
        return True, heartbeat_seconds

    def _is_due(self, ask: Ask) -> bool:
        """Whether a long ask may begin: only the closing of a run has to wait at times."""
        if isinstance(ask, CloseRun):
            return self._waited_seconds(ask) >= ask.after_seconds
        return True

    def _waited_seconds(self, ask: Ask) -> float:
        since = self._follower.folded_at(ask.since, self._began)
        if isinstance(ask, DeclareLost):
            return self._hearts.silent_seconds("learner", ask.learner, since)
        return max(0.0, self._clock() - since)

    def _quorum_seconds(self, ask: Ask) -> float:
        """From a window's opening to its quorum."""
        if not isinstance(ask, CloseWindow) or not ask.quorum_at:
            return 0.0
        quorum = self._follower.folded_at(ask.quorum_at, self._clock())
        return max(0.0, quorum - self._follower.folded_at(ask.since, self._began))

    async def _read(self, inbox: Inbox) -> None:
        """Letters after the cursor that the tape holds for this life of the inbox."""
        life = await self._life_of(inbox)
        known, sequence = self._follower.state.inboxes.get(inbox.region, (life, 0))
        if known != life:
            log("syncer").warning(
                "this inbox was made anew; reading it from its start",
                region=inbox.region,
                life=life,
                before=known,
            )
            sequence = 0
        async for letter in inbox.follow(sequence):
            await self._letters.put(letter)
            self._follower.ring()

    async def _life_of(self, inbox: Inbox) -> str:
        """The inbox's life. A server that is away is waited for: our appends see its end."""
        while True:
            try:
                return await inbox.life()
            except ServerUnreachable as error:
                log("syncer").warning("an inbox does not answer", error=str(error))
                await asyncio.sleep(self._config.run.times.heartbeat_seconds)

    def _finished(self, key: str, draft: Draft) -> None:
        self._drafts.append((key, draft))
        self._follower.ring()

    def _say_why(self, state: State, asks: tuple[Ask, ...]) -> None:
        """Logs a window's reason to close when it is new."""
        current = {ask.key: ask.reason for ask in asks if isinstance(ask, CloseWindow)}
        for key, reason in current.items():
            if self._reason.get(key) != reason:
                log("syncer").debug(key, reason=reason, position=state.position)
        self._reason = current
