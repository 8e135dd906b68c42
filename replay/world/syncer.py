"""A syncer's process in the world: follows the tape, and takes over when the leader is silent.

What decides is the production code: fold, heartbeats and patience. Here is the shell that a live
syncer has in `decodiloco.syncer.service`, with moments in place of tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.store.keys import snapshot_key
from decodiloco.store.small import read_small
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.leadership import Heartbeats, Patience
from decodiloco.syncer.snapshot import decode_state
from decodiloco.syncer.state import RULES, State
from replay.invariants.all_of_them import known_answer
from replay.world.network import Delivery, Service
from replay.world.process import Process
from replay.world.reign import Reign
from replay.world.sending import Sending
from streams.envelope import Envelope
from streams.errors import Failure
from streams.events import SnapshotStored, SyncerTookOver
from streams.pulse import Beat
from streams.tape import Refused, Stored
from streams.times import APPEND_PATIENCE_SECONDS

if TYPE_CHECKING:
    from replay.world.world import World

T = TypeVar("T")

RETRY_SECONDS = 1.0


class SyncerProcess(Process):
    """One life of a syncer: standby until it leads, leader until it is succeeded."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.heap, name, world.process_ended)
        self.world = world
        self.name = name
        self.state: State = world.beginning
        self.folded_at: dict[int, float] = {}
        self.reign: Reign | None = None
        self.times = world.case.opening.run.times
        self.hearts = Heartbeats(name, self.times, lambda: world.heap.now)
        self._patience = Patience(self.times, lambda: world.heap.now)
        self._last_record_at = world.heap.now
        self._waits: list[tuple[int, Callable[[], None]]] = []
        self._is_trying = False

    def start(self) -> None:
        """Catches up with the tape, from a snapshot if there is one; then serves."""
        self._ask("read", lambda: list(self.world.tape.records), self._read_back)

    def wall_seconds(self) -> float:
        """What this machine takes for the time of day."""
        return self.world.wall_seconds(self.machine)

    def when_folded(self, position: int, happen: Callable[[], None]) -> None:
        """Lets something happen once the state includes this position."""
        if self.state.position >= position:
            happen()
        else:
            self._waits.append((position, happen))

    def mergers(self) -> set[str]:
        """Mergers that were heard of late."""
        return self.hearts.names("merger", self.times.takeover_seconds)

    def is_over(self) -> bool:
        """Closed, and nobody there who still has to be heard."""
        if self.state.closed is None:
            return False
        quiet_seconds = self.heap.now - self._last_record_at
        return not self.state.live or quiet_seconds >= self.times.orphan_seconds_max

    def reign_ended(self) -> None:
        """Another syncer leads now."""
        self.reign = None
        self._patience.failed()
        self.world.hit("a leader stands down")

    def _ask(
        self,
        kind: str,
        do: Callable[[], T],
        then: Callable[[T], None],
        service: Service = "nats",
    ) -> None:
        """Asks until there is an answer."""

        def answered(result: T | Failure) -> None:
            if isinstance(result, Failure):
                self.later(RETRY_SECONDS, lambda: self._ask(kind, do, then, service))
            else:
                then(result)

        self.world.network.call(self, service, kind, do, answered)

    def _read_back(self, records: list[Envelope]) -> None:
        stored = [e.event for e in records if isinstance(e.event, SnapshotStored)]
        if not stored:
            self._follow(self.world.beginning, records)
            return
        newest = stored[-1]
        key = snapshot_key(self.world.run, newest.position, newest.manifest)

        def get() -> bytes | None:
            try:
                return read_small(self.world.store, key, newest.manifest)
            except (BlobMissing, BlobCorrupt):
                return None

        def begin(payload: bytes | None) -> None:
            if payload is None:
                self._follow(self.world.beginning, records)
                return
            self.world.hit("a syncer begins from a snapshot")
            self._follow(decode_state(self.world.case.opening, payload), records)

        self._ask("get", get, begin, "store")

    def _follow(self, state: State, records: list[Envelope]) -> None:
        for envelope in records[state.position :]:
            state = self.world.fold(state, envelope)
        self.state = state
        self._last_record_at = self.heap.now
        world = self.world
        Delivery(world.network, self, world.tape.shelf, self.state.position, self._take)
        world.pulse.listen(self, self.hearts.take, "learner", "syncer", "merger")
        self._beat()
        self._tick()

    def _take(self, envelope: Envelope) -> None:
        """One record more."""
        self.state = self.world.fold(self.state, envelope)
        self.folded_at[envelope.position] = self._last_record_at = self.heap.now
        reached = [wait for wait in self._waits if wait[0] <= self.state.position]
        self._waits = [wait for wait in self._waits if wait[0] > self.state.position]
        for _, happen in reached:
            happen()
        if self.reign is not None:
            self.reign.wake()

    def _beat(self) -> None:
        self._beat_once()
        self.later(self.times.heartbeat_seconds, self._beat)

    def _beat_once(self) -> None:
        reign = self.reign
        values: dict[str, int | float | str] = {
            "fence": reign.fence if reign else self.state.fence,
            "position": self.state.position,
            "leading": 1 if reign else 0,
            "closed": 0 if self.state.closed is None else 1,
        }
        self.world.pulse.beat(self, Beat("syncer", self.name, values))

    def _tick(self) -> None:
        """Whether to take over; a leader looks for itself what is due."""
        if self.is_over():
            self._beat_once()  # mergers hear from us that it is over
            self.world.syncer_finished(self)
            return
        if self.reign is not None:
            self.reign.wake()
        elif not self._is_trying and self._may_take_over():
            self._take_over()
        self.later(self.times.heartbeat_seconds / 2, self._tick)

    def _may_take_over(self) -> bool:
        if self.state.position == 0:
            return False
        wanted = self._patience.seconds(self.state)
        quiet_seconds = self.heap.now - self._last_record_at
        silent_seconds = min(self.hearts.leader_silent_seconds(self.state), quiet_seconds)
        return wanted == 0.0 or silent_seconds >= wanted

    def _take_over(self) -> None:
        """Reads to the tape's end; then, if nobody leads by then, writes the next fence."""
        self._is_trying = True
        before = self.state.fence

        def last(position: int | Failure) -> None:
            if isinstance(position, Failure):
                self._is_trying = False
                return
            self.when_folded(position, lambda: self._write_fence(before))

        self.world.network.call(self, "nats", "read", lambda: len(self.world.tape.records), last)

    def _write_fence(self, before: int) -> None:
        if self.state.fence != before:
            self._lost_race(before)
            return
        fence = before + 1
        event = SyncerTookOver(
            syncer=self.name,
            fence=fence,
            rules=RULES,
            self_test=known_answer(),
            fingerprint="world",
        )
        pen = Pen(self.name, fence)
        batch = compose(self.state, [Draft(lambda _: event)], pen, self.wall_seconds())

        def settled(outcome: Stored | Refused) -> None:
            if isinstance(outcome, Refused) or self.state.fence != fence:
                self._lost_race(before)
                return
            self._is_trying = False
            self.world.point(self, "takeover stored")
            self.reign = Reign(self, fence)
            self.reign.begin()

        self.world.point(self, "takeover composed")
        Sending(self, batch, settled, APPEND_PATIENCE_SECONDS).send()

    def _lost_race(self, fence_before: int) -> None:
        self._is_trying = False
        self.world.hit("a takeover is lost to another")
        if fence_before > 0:
            self._patience.failed()
