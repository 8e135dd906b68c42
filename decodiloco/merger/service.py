"""A merger as a process: it merges what the leading syncer asks for. No tape, no state. Thin shell.

It may be killed, and may be one of several, on any host that reaches server and store: what it
has stored under names of its digests, another one stores again.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from decodiloco.config import Config
from decodiloco.errors import Orphaned
from decodiloco.merge import loading
from decodiloco.merge.order import Abandoned, MergeOrder
from decodiloco.merge.room import MERGES_AT_ONCE
from decodiloco.merge.self_test import self_test
from decodiloco.merger.jobs import Jobs
from decodiloco.merger.orders import Result
from decodiloco.merger.threads import Threads
from decodiloco.places import Places, open_places
from decodiloco.syncer.leadership import beat_on
from decodiloco.telemetry import log
from streams.errors import Failure
from streams.pulse import Beat
from streams.subjects import checked


class Merger:
    """One merger of a run, from its start to the run's end."""

    def __init__(self, config: Config, name: str, places: Places) -> None:
        self.name = checked(name, "merger")
        self._config = config
        self._places = places
        self._crew = Threads(places.store, MERGES_AT_ONCE, config.here.threads, self._tell)
        self._jobs = Jobs(config.run.name, self._crew)

    async def run(self) -> None:
        """Merges until a syncer says that the run is closed.

        Raises Orphaned when no syncer was heard for `orphan_seconds_max`, Disagreement when this
        machine's arithmetic is not ours.
        """
        await asyncio.to_thread(loading.are_ready)
        self_test()
        times, calls = self._config.run.times, self._places.calls
        assert calls is not None
        log("merger").info("merges for the run's syncer", threads=self._config.here.threads)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(calls.answer(self.name, self._jobs.answer), name="answer"),
                    group.create_task(
                        beat_on(self._places.pulse, self._beat, times.heartbeat_seconds),
                        name="beat",
                    ),
                ]
                await self._closed(times.orphan_seconds_max)
                for task in tasks:
                    task.cancel()
        finally:
            self._crew.close()
        log("merger").info("the run is over", merges=self._crew.done)

    async def _closed(self, silent_seconds_max: float) -> None:
        """Returns when a syncer says that the run is closed."""
        clock = asyncio.get_running_loop().time
        try:
            async with (
                asyncio.timeout(silent_seconds_max) as limit,
                aclosing(self._places.pulse.listen()) as beats,
            ):
                async for beat in beats:
                    if beat.role != "syncer":
                        continue
                    if beat.count("closed"):
                        return
                    limit.reschedule(clock() + silent_seconds_max)
        except TimeoutError:
            raise Orphaned(
                f"run {self._config.run.name}: no syncer was heard for {silent_seconds_max:.0f} s; "
                "start one, then this merger again"
            ) from None

    def _beat(self) -> Beat:
        return Beat("merger", self.name, {"working": self._jobs.working, "merges": self._crew.done})

    def _tell(self, order: MergeOrder, came: Result | Failure) -> None:
        about = {"round": order.round, "fragment": order.fragment, "version": order.version}
        if isinstance(came, Failure):
            log("merger").warning("a merge failed here", **about, error=str(came))
        elif isinstance(came, Abandoned):
            log("merger").info("too few deltas passed", **about, left_out=len(came.left_out))
        else:
            log("merger").debug("merged", **about, contributions=len(came.contributions))


async def run_merger(config: Config, name: str) -> None:
    """Runs a merger until the run is over. Raises Failure; cancel it to stop it."""
    places = await open_places(config, f"merger-{name}")
    try:
        await Merger(config, name, places).run()
    except ExceptionGroup as group:  # a task group wraps what one of its tasks died of
        raise group.exceptions[0] from None
    finally:
        await places.close()
