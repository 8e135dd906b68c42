"""A merger's process in the world: it merges what a leader asks for. No tape, no state.

What answers is the production code: jobs by their orders. Here is the shell that a live merger
has in `decodiloco.merger.service`, with moments in place of threads.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from decodiloco.errors import Orphaned
from decodiloco.merge.fragment import Merged, merge_fragment
from decodiloco.merge.order import MergeOrder
from decodiloco.merger.jobs import Jobs
from decodiloco.merger.orders import Result
from replay.world.places import SeenStore
from replay.world.process import Process
from replay.world.storing import Storing
from streams.errors import Failure
from streams.pulse import Beat

if TYPE_CHECKING:
    from replay.world.world import World


class MergerProcess(Process):
    """One life of a merger, from its start until a syncer says that the run is closed."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.heap, name, world.process_ended)
        self.world = world
        self.name = name
        self._times = world.case.opening.run.times
        self._jobs = Jobs(world.run, self)
        self._done = 0
        self._heard_at = world.heap.now

    def start(self) -> None:
        """Answers, beats and listens for syncers."""
        self.world.calls.answer(self, self.name, self._jobs.answer)
        self.world.pulse.listen(self, self._hear, "syncer")
        self._beat()

    def begin(self, order: MergeOrder) -> Future[Result]:
        """Works for a while, then reads, computes and stores; the result once that is done."""
        job: Future[Result] = Future()
        seconds = self.world.case.merge_seconds * (0.5 + self.world.random.random())
        self.work(seconds, lambda: self._carry_out(order, job))
        return job

    def _carry_out(self, order: MergeOrder, job: Future[Result]) -> None:
        slept = 0.0

        def sleep(seconds: float) -> None:
            nonlocal slept
            slept += seconds

        world = self.world
        world.point(self, "merge begins to read")
        seen = SeenStore(world.store, lambda: world.sees_store(self))
        try:
            result = merge_fragment(order, seen, sleep=sleep)
        except Failure as failure:
            job.set_exception(failure)
            return
        world.merged(order, result)
        told = result.stored() if isinstance(result, Merged) else result

        def stored() -> None:
            self._done += 1
            world.merger_merged(self, order, told)
            job.set_result(told)

        blobs = result.blobs(order) if isinstance(result, Merged) else []
        storing = Storing(world, self, stored, job.set_exception)
        self.later(slept, lambda: storing.put(blobs))

    def _beat(self) -> None:
        silent_seconds = self.heap.now - self._heard_at
        if silent_seconds > self._times.orphan_seconds_max:
            raise Orphaned(f"no syncer was heard for {silent_seconds:.0f} s")
        values: dict[str, int | float | str] = {"working": self._jobs.working, "merges": self._done}
        self.world.pulse.beat(self, Beat("merger", self.name, values))
        self.later(self._times.heartbeat_seconds, self._beat)

    def _hear(self, beat: Beat) -> None:
        self._heard_at = self.heap.now
        if beat.count("closed"):
            self.world.merger_finished(self)
