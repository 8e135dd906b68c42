"""A syncer as a process: follows the tape, and while it leads, writes it. Thin shell.

Whatever is decided is decided in the pure files beside this one; here are only the clock, the
queues and the threads. A takeover, a restart and a normal day are the same path.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable

import numpy as np

from decodiloco.config import Config
from decodiloco.config_faults import first_difference
from decodiloco.errors import ConfigDiffers
from decodiloco.merge import loading
from decodiloco.merge.self_test import self_test
from decodiloco.places import Places, open_places
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.follower import Follower, catch_up
from decodiloco.syncer.leadership import Heartbeats, Patience, beat_on
from decodiloco.syncer.reign import Reign
from decodiloco.syncer.state import RULES
from decodiloco.telemetry import log
from streams.errors import ServerUnreachable
from streams.events import SyncerTookOver
from streams.pulse import Beat
from streams.subjects import checked
from streams.tape import Stored, append_surely


class Syncer:
    """One syncer: standby until it leads, leader until it is succeeded or the run is over."""

    def __init__(self, config: Config, name: str, places: Places, follower: Follower) -> None:
        self.name = checked(name, "syncer")
        self._config = config
        self._places = places
        self._follower = follower
        times = config.run.times
        clock = asyncio.get_running_loop().time
        self._hearts = Heartbeats(name, times, clock)
        self._patience = Patience(times, clock)
        self._reign: Reign | None = None
        self._self_test = self_test()

    async def run(self) -> None:
        """Serves the run until it is over: closed, and nobody there who still has to be heard."""
        times = self._config.run.times
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._follower.follow(), name="follow the tape"),
                group.create_task(self._hearts.listen(self._places.pulse), name="listen"),
                group.create_task(
                    beat_on(self._places.pulse, self._beat, times.heartbeat_seconds), name="beat"
                ),
            ]
            await self._serve()
            await self._places.pulse.beat(self._beat())  # mergers hear from us that it is over
            for task in tasks:
                task.cancel()

    async def _serve(self) -> None:
        state = self._follower.state
        if state.fence and state.closed is None:
            log("syncer").info("standing by", leader=state.leader, fence=state.fence)
        while not self._over():
            if not self._may_take_over():
                await self._follower.rung(self._config.run.times.heartbeat_seconds / 2)
                continue
            was_led = self._follower.state.fence > 0
            try:
                fence = await self._take_over()
            except ServerUnreachable as error:  # our heartbeats come back, so it will, too
                log("syncer").warning("no takeover yet", error=str(error))
                await asyncio.sleep(self._config.run.times.heartbeat_seconds)
                continue
            if fence is not None:
                await self._lead(fence)
            elif was_led:  # to lose the race for a new run is no reason to be slow later
                self._patience.failed()
        log("syncer").info(
            "the run is over", run=self._config.run.name, position=self._follower.state.position
        )

    async def _lead(self, fence: int) -> None:
        loading.load_beside(_tell_of_loops())
        pen = Pen(self.name, fence)
        self._reign = Reign(self._config, self._places, self._follower, self._hearts, pen)
        try:
            await self._reign.hold(self._over)
        finally:
            self._reign = None
        if not self._over():
            self._patience.failed()

    def _over(self) -> bool:
        """Closed, all learners gone, and no evaluator that still wants to say something."""
        state, times = self._follower.state, self._config.run.times
        if state.closed is None:
            return False
        if state.live and self._follower.quiet_seconds() < times.orphan_seconds_max:
            return False
        if self._hearts.listened_seconds() < times.takeover_seconds:
            return False  # an evaluator that waits for us may not have been heard yet
        return not self._hearts.anyone("evaluator", times.takeover_seconds)

    def _may_take_over(self) -> bool:
        """Whether the leader is silent: neither a heartbeat nor a fact for long enough."""
        state = self._follower.state
        if state.position == 0:
            return False
        if state.closed is not None and not state.live:
            waiting = self._hearts.anyone("evaluator", self._config.run.times.takeover_seconds)
            if not waiting:
                return False  # nothing is left to be written
        wanted = self._patience.seconds(state)
        silent = min(self._hearts.leader_silent_seconds(state), self._follower.quiet_seconds())
        return wanted == 0.0 or silent >= wanted

    async def _take_over(self) -> int | None:
        """The fence won, or None when somebody else wrote first."""
        before = self._follower.state.fence
        await self._follower.reached(await self._places.tape.last())
        state = self._follower.state
        if state.fence != before:
            log("syncer").info("another syncer leads already", fence=state.fence)
            return None
        fence = before + 1
        event = SyncerTookOver(
            syncer=self.name,
            fence=fence,
            rules=RULES,
            self_test=self._self_test,
            fingerprint=fingerprint(),
        )
        batch = compose(state, [Draft(lambda _: event)], Pen(self.name, fence), time.time())
        outcome = await append_surely(self._places.tape, batch)
        if not isinstance(outcome, Stored):
            log("syncer").info("another syncer was faster", fence=fence, why=outcome.why)
            await self._follower.reached(batch[0].position)
            return None
        await self._follower.reached(outcome.last)
        if self._follower.state.fence != fence:
            return None
        log("syncer").info("took over", fence=fence, position=outcome.last, before=state.leader)
        return fence

    def _beat(self) -> Beat:
        state = self._follower.state
        reign = self._reign
        return Beat(
            "syncer",
            self.name,
            {
                "fence": reign.fence if reign else state.fence,
                "position": state.position,
                "leading": 1 if reign else 0,
                "closed": 0 if state.closed is None else 1,
                **({"waiting": reign.waits_for} if reign and reign.waits_for else {}),
            },
        )


def fingerprint() -> str:
    """What this process computes with, for people who compare machines."""
    return f"{platform.machine()} {platform.python_version()} numpy {np.__version__}"


def _tell_of_loops() -> Callable[[], None]:
    """Tells of the compiled loops once they are there: until then merges go by the definition."""
    began_seconds = time.monotonic()

    def tell() -> None:
        log("syncer").info("loops loaded", seconds=round(time.monotonic() - began_seconds, 1))

    return tell


async def run_syncer(config: Config, name: str, places: Places | None = None) -> None:
    """Runs a syncer until the run is over. Raises Failure; cancel it to stop it."""
    own = places is None
    places = places or await open_places(config, f"syncer-{name}")
    try:
        state = await catch_up(places)
        difference = first_difference(config.run, state.config)
        if difference is not None:
            raise ConfigDiffers(f"run {config.run.name}: {difference}")
        await Syncer(config, name, places, Follower(places, state)).run()
    except ExceptionGroup as group:  # a task group wraps what one of its tasks died of
        raise group.exceptions[0] from None
    finally:
        if own:
            await places.close()
