"""The tape's end, followed and folded as it comes. Thin: remembers when it folded what.

Leader and standby follow alike: a leader's own facts are in its state once they are read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from decodiloco.errors import Disagreement
from decodiloco.places import Places
from decodiloco.stored_opening import read_opening
from decodiloco.syncer.compose import Foreseen
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from decodiloco.syncer.stored_snapshot import check_rules, newest_state
from decodiloco.telemetry import log
from streams.envelope import Envelope
from streams.errors import AskedWrongly
from streams.events import FragmentMerged, RunOpened, SyncerTookOver


class Follower:
    """A state that grows with the tape, and a bell that rings when it does."""

    def __init__(self, places: Places, state: State) -> None:
        self.state = state
        self._places = places
        self._foreseen: dict[bytes, State] = {}
        self._folded_at: dict[int, float] = {}
        self._last_seconds = asyncio.get_running_loop().time()
        self._bell = asyncio.Event()

    async def follow(self) -> None:
        """Folds until cancelled. Raises Corrupt at a record that cannot follow."""
        loop = asyncio.get_running_loop()
        async for envelope in self._places.tape.follow(self.state.position):
            self.state = self._folded(envelope)
            self._last_seconds = self._folded_at[envelope.position] = loop.time()
            self._forget()
            self.ring()

    def foresee(self, batch: Sequence[Foreseen]) -> None:
        """What a leader is about to append: folded already, if just this is read back.

        What was foreseen before is forgotten.
        """
        self._foreseen = {one.envelope.digest: one.state for one in batch}

    def ring(self) -> None:
        """Wakes whoever waits. Of many rings in one turn of the loop a waiter hears one."""
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def reached(self, position: int) -> None:
        """Waits until the state includes this position."""
        while self.state.position < position:
            await self._bell.wait()

    async def rung(self, seconds_max: float) -> None:
        """Waits until something happens, or for so long."""
        try:
            async with asyncio.timeout(max(0.0, seconds_max)):
                await self._bell.wait()
        except TimeoutError:
            return

    def folded_at(self, position: int, otherwise: float) -> float:
        """The moment (event loop's clock) a position was folded; `otherwise` if not seen here."""
        return self._folded_at.get(position, otherwise)

    def quiet_seconds(self) -> float:
        """For how long no record has come."""
        return asyncio.get_running_loop().time() - self._last_seconds

    def _folded(self, envelope: Envelope) -> State:
        """The state with this record.

        A digest commits to a record and to all before it, so one of a foreseen digest, behind the
        record that we hold for the last, was folded from this very state.
        """
        known = self._foreseen.pop(envelope.digest, None)
        if known is not None and envelope.previous == self.state.digest:
            return known
        return fold_checked(self.state, envelope)

    def _forget(self) -> None:
        if len(self._folded_at) > 20_000:
            for position in sorted(self._folded_at)[:10_000]:
                del self._folded_at[position]


def fold_checked(state: State, envelope: Envelope) -> State:
    """One fact more, whose state digest, if it carries one, is the digest of our own state."""
    event = envelope.event
    if isinstance(event, SyncerTookOver):
        check_rules(event.rules, f"run {state.run}, position {envelope.position}")
    if isinstance(event, FragmentMerged) and event.state_digest != state_digest(state):
        raise Disagreement(
            f"run {state.run}, position {envelope.position}: the writer's state differs from the "
            f"one folded here; compare with `replay verify`"
        )
    return fold(state, envelope)


async def catch_up(places: Places) -> State:
    """The state at the tape's end: from the newest snapshot in reach, else from the start."""
    first = await places.tape.read(0, 1)
    if not first or not isinstance(first[0].event, RunOpened):
        raise AskedWrongly(
            f"run {places.tape.run} is not opened yet: `decodiloco open --config run.toml` first"
        )
    opening = await asyncio.to_thread(read_opening, places.store, first[0].event)
    last = await places.tape.last()
    check_rules(first[0].event.rules, f"run {places.tape.run}")
    state = await newest_state(places.tape, places.store, opening, last, last + 1, _tell)
    state = state or begin(opening)
    if state.position < last:
        async with aclosing(places.tape.follow(state.position)) as records:
            async for envelope in records:
                state = fold_checked(state, envelope)
                if state.position >= last:
                    break
    return state


def _tell(note: str) -> None:
    log("syncer").warning(note)
