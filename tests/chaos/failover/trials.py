"""The measurements: who is killed or stopped, how soon the run merges again, who notices.

Each trial is one figure of a list; bounds are the project's own promises.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streams.events import SyncerTookOver
from tests.chaos.failover.stage import LEARNERS, SYNCERS, Stage, staged
from tests.real_cluster import until
from tests.trio import leader_of, whole

ONE_SERVER_SECONDS_MAX = 4.0
THREE_SERVERS_SECONDS_MAX = 10.0
GROWTH_STEPS_MAX = 2.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured in each try, and what its median (or its worst) must not pass."""

    name: str
    unit: str
    values: Sequence[float]
    bound: float
    worst: bool = False

    @property
    def found(self) -> float:
        return max(self.values) if self.worst else statistics.median(self.values)

    @property
    def met(self) -> bool:
        return self.found < self.bound or self.found == self.bound == 0

    def __str__(self) -> str:
        which = "worst" if self.worst else "median"
        raw = " ".join(f"{value:.2f}" for value in self.values)
        verdict = "met" if self.met else "NOT MET"
        return (
            f"{self.name}: {which} of {len(self.values)}: {self.found:.2f} {self.unit}, "
            f"bound {self.bound:g}: {verdict}\n    {raw}"
        )


async def kill_the_syncer(folder: Path, tries: int) -> list[Figure]:
    """`kill -9` of the syncer that leads, on one nats-server."""
    seconds, growths = [], []
    async with staged(folder) as stage:
        for _ in range(tries):
            await stage.calm()
            leader, fence = stage.leader, stage.follower.state.fence
            killed = stage.signal(leader, signal.SIGKILL)
            await stage.merge_under(fence + 1)
            seconds.append(time.monotonic() - killed)
            stage.start_syncer(leader)
            growths.append(await stage.growth_steps(LEARNERS, killed))
            await stage.stands_by(leader)
    return [
        Figure("syncer killed, one server: next merge", "s", seconds, ONE_SERVER_SECONDS_MAX),
        Figure("  learners' longest gap grew by", "steps", growths, GROWTH_STEPS_MAX),
    ]


async def kill_syncer_and_server(folder: Path, tries: int) -> list[Figure]:
    """Both at once, of three servers the one that leads the tape. It does not lead the inbox."""
    seconds, growths = [], []
    async with staged(folder, with_trio=True) as stage:
        for _ in range(tries):
            await stage.calm()
            server = await lead_apart(stage)
            leader, fence = stage.leader, stage.follower.state.fence
            killed = stage.signal(leader, signal.SIGKILL)
            await asyncio.to_thread(stage.trio.kill, server)
            await stage.merge_under(fence + 1)
            seconds.append(time.monotonic() - killed)
            stage.start_syncer(leader)
            stage.trio.start(server)
            growths.append(await stage.growth_steps(LEARNERS, killed))
            await stage.stands_by(leader)
            await whole(stage.connection, "TAPE_tiny")
    return [
        Figure(
            "syncer and the tape's leading server killed: next merge",
            "s",
            seconds,
            THREE_SERVERS_SECONDS_MAX,
        ),
        Figure("  learners' longest gap grew by", "steps", growths, GROWTH_STEPS_MAX),
    ]


async def lead_apart(stage: Stage) -> int:
    """The server that leads the tape, once it is not the one that holds the inbox."""
    home = await leader_of(stage.connection, "IN_tiny_home")
    while (server := await leader_of(stage.connection, "TAPE_tiny")) == home:
        body = {"placement": {"preferred": f"s{(home + 1) % 3}"}}
        await stage.connection.wire.api("STREAM.LEADER.STEPDOWN.TAPE_tiny", body)
        await stage.follower.merges(2)
    return server


async def kill_the_inbox(folder: Path, tries: int) -> list[Figure]:
    """`kill -9` of the server that holds the inbox, started again at once, as a supervisor does."""
    seconds, growths = [], []
    async with staged(folder, with_trio=True) as stage:
        for _ in range(tries):
            await stage.calm()
            home = await leader_of(stage.connection, "IN_tiny_home")
            killed = time.monotonic()
            await asyncio.to_thread(stage.trio.kill, home)
            stage.trio.start(home)
            opened = await stage.next_round()
            await stage.merge_of(opened)
            seconds.append(time.monotonic() - killed)
            growths.append(await stage.growth_steps(LEARNERS, killed))
            await whole(stage.connection, "TAPE_tiny")
    return [
        Figure(
            "the inbox's server killed and started again: next round merged",
            "s",
            seconds,
            THREE_SERVERS_SECONDS_MAX,
        ),
        Figure("  learners' longest gap grew by", "steps", growths, GROWTH_STEPS_MAX),
    ]


async def kill_a_learner(folder: Path, tries: int) -> list[Figure]:
    """`kill -9` of one learner, which is started again at once; what the others notice of it."""
    growths = []
    async with staged(folder) as stage:
        for name in itertools.islice(itertools.cycle(LEARNERS), tries):
            await stage.calm()
            others = [other for other in LEARNERS if other != name]
            joins = asyncio.create_task(stage.joins(name))
            killed = stage.signal(name, signal.SIGKILL)
            stage.start_learner(name)
            growths.append(await stage.growth_steps(others, killed))
            await joins
    return [Figure("learner killed: others' longest gap grew by", "steps", growths, 2.0)]


async def pause_the_syncer(folder: Path, tries: int) -> list[Figure]:
    """SIGSTOP of the syncer that leads until another does, then SIGCONT: it must write nothing."""
    stale, stood_down = [], 0
    async with staged(folder) as stage:
        for number in range(tries):
            await stage.follower.merges(2)
            leader, fence = stage.leader, stage.follower.state.fence
            said = stage.cluster.log(stage.process(leader)).count("standing down")
            stage.signal(leader, signal.SIGSTOP)
            taken = await stage.takeover(fence + 1)
            if number % 2:
                await stage.merge_under(fence + 1)
            stage.signal(leader, signal.SIGCONT)
            log = stage.process(leader)
            await until(
                lambda log=log, said=said: stage.cluster.log(log).count("standing down") > said,
                f"{leader} stands down",
            )
            stood_down += 1
            await stage.follower.merges(2)
            later = stage.follower.tape[taken.position :]
            stale.append(sum(envelope.fence <= fence for envelope in later))
        fences = [envelope.fence for envelope in stage.follower.tape]
        assert fences == sorted(fences), "an older fence wrote after a newer one"
        assert len(stage.follower.facts(SyncerTookOver)) >= tries
    assert stood_down == tries
    return [Figure("syncer stopped past its succession: stale facts", "", stale, 0.0, worst=True)]


TRIALS = {
    "syncer": (kill_the_syncer, 10),
    "three": (kill_syncer_and_server, 10),
    "inbox": (kill_the_inbox, 10),
    "learner": (kill_a_learner, 10),
    "paused": (pause_the_syncer, 20),
}
assert set(SYNCERS).isdisjoint(LEARNERS)
