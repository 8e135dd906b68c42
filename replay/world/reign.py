"""The time during which one syncer of the world leads: letters and asks become batches.

The same turns as `decodiloco.syncer.reign`, whose machines decide everything; here one batch is
in flight at a time, and moments take the place of tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodiloco.syncer import drafting
from decodiloco.syncer.compose import Draft, Pen, compose
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
from decodiloco.times import TAPE_PATIENCE_SECONDS
from replay.world.carrying import Carrier
from replay.world.network import Delivery
from replay.world.sending import Sending
from streams.inbox import Letter
from streams.tape import BATCH_MAX, Refused, Stored

if TYPE_CHECKING:
    from replay.world.syncer import SyncerProcess

SHARE = BATCH_MAX // 4


class Reign:
    """One syncer leading under one fence."""

    def __init__(self, syncer: SyncerProcess, fence: int) -> None:
        self.fence = fence
        self._syncer, self._world = syncer, syncer.world
        self._began = syncer.heap.now
        self._pen = Pen(syncer.name, fence)
        self._letters: list[Letter] = []
        self._drafts: list[tuple[str, Draft]] = []
        self._keys: list[str] = []
        self._refusals = Refusals(lambda: syncer.heap.now)
        self._carrier = Carrier(syncer, self._finished)
        self._deliveries: list[Delivery[Letter]] = []
        self._is_woken = False
        self._is_writing = False
        self._alarm_at = 0.0
        self._idle: tuple[State, float] | None = None  # nothing is due of this state until then

    def begin(self) -> None:
        """Reads each inbox from the cursor that the tape holds for its life."""
        for region in sorted(self._world.inboxes):
            inbox = self._world.inboxes[region]
            life, sequence = self._syncer.state.inboxes.get(region, (inbox.life, 0))
            after = sequence if life == inbox.life else 0
            self._deliveries.append(
                Delivery(self._world.network, self._syncer, inbox.shelf, after, self._read)
            )
        self.wake()

    def wake(self) -> None:
        """Takes a turn as soon as all that happens now has happened."""
        if not self._is_woken:
            self._is_woken = True
            self._syncer.later(0.0, self._turn)

    def _turn(self) -> None:
        self._is_woken = False
        state = self._syncer.state
        if self._syncer.reign is not self or self._is_writing:
            return
        if state.fence != self.fence or self._syncer.is_over():
            self._end()
            return
        drafts, due_seconds = self._looked(state)
        del drafts[SHARE:]
        done, self._drafts = self._drafts[:SHARE], self._drafts[SHARE:]
        drafts += [draft for _, draft in done]
        drafts += self._refusals.due(SHARE)
        room = BATCH_MAX - len(drafts)
        letters, self._letters = self._letters[:room], self._letters[room:]
        for letter in letters:
            self._syncer.hearts.heard("learner", letter.speaker)
            drafts.append(drafting.from_letter(letter, self._refusals.take))
        if drafts:
            self._is_writing = True
            self._keys = [key for key, _ in done]
            self._write(drafts)
        elif due_seconds < self._syncer.times.heartbeat_seconds / 2:
            self._alarm(due_seconds)

    def _looked(self, state: State) -> tuple[list[Draft], float]:
        """What is due of what is owed, and seconds until more is; jobs begun and forgotten.

        A state that was looked at is not looked at again before something of it may be due:
        time and heartbeats alone make nothing due any earlier.
        """
        now = self._syncer.heap.now
        if self._idle is not None and self._idle[0] is state and now < self._idle[1]:
            return [], self._idle[1] - now
        asks = owed(state)
        self._carrier.compare(state, [ask for ask in asks if self._is_due(ask)])
        drafts, due_seconds = self._due(asks)
        is_idle = not drafts and state.closing is None
        self._idle = (state, now + due_seconds) if is_idle else None
        return drafts, due_seconds

    def _write(self, drafts: list[Draft]) -> None:
        """One batch, composed anew after each refusal: by then the state is another."""
        syncer = self._syncer
        if syncer.state.fence != self.fence:
            self._written()
            return
        batch = compose(syncer.state, drafts, self._pen, syncer.wall_seconds())
        if not batch:
            self._written()
            return

        def settled(outcome: Stored | Refused) -> None:
            self._world.point(syncer, "batch settled")
            if isinstance(outcome, Stored):
                self._written()
            else:
                self._write(drafts)

        self._world.point(syncer, f"{batch[-1].event.kind} composed")
        Sending(syncer, batch, settled, TAPE_PATIENCE_SECONDS).send()
        self._world.point(syncer, "batch sent")

    def _written(self) -> None:
        self._is_writing, self._idle = False, None
        for key in self._keys:
            self._carrier.forget(key)
        self.wake()

    def _due(self, asks: tuple[Ask, ...]) -> tuple[list[Draft], float]:
        """Drafts of the timed asks whose wait is over, and seconds until the next one's is."""
        drafts: list[Draft] = []
        soonest = self._syncer.times.heartbeat_seconds
        for ask in asks:
            if not isinstance(ask, (OpenRound, CloseWindow, DeclareLost, BeginClosing)):
                continue
            left = ask.after_seconds - self._waited_seconds(ask)
            if left <= 0:
                waited = self._waited(ask)
                drafts.append(drafting.from_timed(ask, waited, self._pen.writer))
            else:
                soonest = min(soonest, left)
        return drafts, soonest

    def _is_due(self, ask: Ask) -> bool:
        if isinstance(ask, CloseRun):
            return self._waited_seconds(ask) >= ask.after_seconds
        return True

    def _waited_seconds(self, ask: Ask) -> float:
        since = self._syncer.folded_at.get(ask.since, self._began)
        if isinstance(ask, DeclareLost):
            return self._syncer.hearts.silent_seconds("learner", ask.learner, since)
        return max(0.0, self._syncer.heap.now - since)

    def _waited(self, ask: Ask) -> drafting.Waited:
        syncer, quorum = self._syncer, 0.0
        if isinstance(ask, CloseWindow) and ask.quorum_at:
            since = syncer.folded_at.get(ask.since, self._began)
            quorum = max(0.0, syncer.folded_at.get(ask.quorum_at, syncer.heap.now) - since)
        return drafting.Waited(quorum, self._waited_seconds(ask))

    def _read(self, letter: Letter) -> None:
        self._world.point(self._syncer, "inbox read")
        self._letters.append(letter)
        self.wake()

    def _finished(self, key: str, draft: Draft) -> None:
        self._drafts.append((key, draft))
        self.wake()

    def _alarm(self, seconds: float) -> None:
        """Wakes again when the next wait is over, unless an earlier alarm is set."""
        now = self._syncer.heap.now
        if now < self._alarm_at <= now + seconds:
            return
        self._alarm_at = now + seconds
        self._syncer.later(seconds + 1e-9, self.wake)

    def _end(self) -> None:
        for delivery in self._deliveries:
            delivery.end()
        self._carrier.close()
        if self._syncer.state.fence != self.fence:
            self._syncer.reign_ended()
        else:
            self._syncer.reign = None
