"""A run of real processes whose extra learners come and go, and the time it takes to a budget.

Learners compute for some milliseconds and wait for the rest of their pace, so the machine's cores
are not what is measured. Extra learners join when their stay begins, and are told to leave by
SIGTERM when it is over: what joining and leaving take counts against them.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from decodiloco.local.availability import Availability
from decodiloco.local.plan import learner_ids
from decodiloco.local.spot import come_and_go
from replay.goodput.scavenging import by_work, decoupled, ideal_by_work
from streams.envelope import Envelope
from streams.events import LearnerLeft, RunClosed, RunClosing
from tests.chaos.scavenging.machines import Machines, lives_there, trainee
from tests.chaos.soak.stepping import gaps_of, stepping
from tests.chaos.test_takeover import watched
from tests.hostile import Follower
from tests.real_cluster import RealCluster, until

START_SECONDS_MAX = 240.0
END_SECONDS_MAX = 120.0
MODEL = {"layers": 1, "width": 32, "heads": 2, "context": 32}
SEQUENCES = 4
TOKENS_PER_STEP = SEQUENCES * MODEL["context"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A base of learners, how long it alone takes to the budget, and in how many days and nights.

    A learner makes a step each `pace_seconds`. `cold`: a process is started when its machine comes.
    """

    base: int
    budget_seconds: float
    nights: int
    pace_seconds: float
    cold: bool = False

    @property
    def budget_tokens(self) -> int:
        return round(self.base * self.budget_seconds / self.pace_seconds) * TOKENS_PER_STEP


@dataclass(slots=True)
class Scavenged:
    """What one run came to, with each start of an extra learner and each leave.

    `start_seconds`: from the beginning of its stay to its first step; `left_seconds`: from SIGTERM
    to the end of the process.
    """

    asked: Asked
    extra: int
    seconds: float = 0.0
    start_seconds: list[float] = field(default_factory=list)
    left_seconds: list[float] = field(default_factory=list)
    preempted: int = 0
    stepping_share: float = 0.0

    @property
    def ideal(self) -> float:
        return ideal_by_work(self.asked.base, self.extra)

    @property
    def with_starts(self) -> float:
        """What the model of `replay goodput` says to newcomers that take as long to start."""
        begun = statistics.fmean(self.start_seconds) if self.start_seconds else 0.0
        there = nights(self.asked, self.extra)
        return decoupled(self.asked.base, there, self.asked.budget_seconds, begun).relative_time


def nights(asked: Asked, extra: int) -> Availability:
    """Extra learners during half of the work of each night, as in the paper's section 5.3."""
    return by_work(asked.base, extra, asked.budget_seconds / asked.nights)


async def scavenge(folder: Path, asked: Asked, extra: int, proved: bool = False) -> Scavenged:
    """Runs to the budget; `proved`: its tape is held against every stored byte, too."""
    told = Scavenged(asked, extra)
    await asyncio.to_thread(folder.mkdir, parents=True)
    cluster = await asyncio.to_thread(lambda: RealCluster(folder, **settings(asked)))
    with cluster:
        async with watched(cluster) as (follower, _):
            cluster.start("syncer", "one")
            base = learner_ids(asked.base)
            for name in base:
                cluster.spawn(
                    name, sys.executable, "-m", *trainee(folder, name, asked.pace_seconds)
                )
            begun = await first_steps(folder, base)
            await accompany(folder, follower, told, begun)
            for name in base:
                assert await cluster.ended(name, END_SECONDS_MAX) == 0, cluster.log(name)
            told.preempted = sum(left.reason == "preempted" for left in follower.facts(LearnerLeft))
        if proved:
            assert (await asyncio.to_thread(cluster.verified))["ok"]
    told.stepping_share = share_of_stepping(folder, base, asked.pace_seconds)
    return told


async def accompany(folder: Path, follower: Follower, told: Scavenged, begun: float) -> None:
    """Lets the extra learners come and go until the budget is reached, and all end."""
    machines = Machines(folder, told.extra, told.asked.pace_seconds, told.asked.cold)
    told.start_seconds, told.left_seconds = machines.start_seconds, machines.left_seconds
    machines.prepare()
    there = nights(told.asked, told.extra)
    visits = come_and_go(there, machines.roles, machines.come, machines.go, begun)
    visiting = asyncio.create_task(visits)
    reached = asyncio.create_task(follower.first(closing_in, seconds=math.inf))
    try:
        running = [reached, visiting] if told.extra else [reached]
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        if not reached.done():
            visiting.result()
        told.seconds = time.monotonic() - begun
        visiting.cancel()
        await follower.first(lambda e: e.event if isinstance(e.event, RunClosed) else None)
        await machines.ended(END_SECONDS_MAX)
    finally:
        reached.cancel()
        visiting.cancel()
        await asyncio.gather(visiting, return_exceptions=True)
        await machines.stop()


def closing_in(envelope: Envelope) -> RunClosing | None:
    return envelope.event if isinstance(envelope.event, RunClosing) else None


async def first_steps(folder: Path, base: Sequence[str]) -> float:
    """When the base's learners began, on the mean: they do not begin at one moment."""
    await until(lambda: all(lives_there(folder, name) for name in base), "steps", START_SECONDS_MAX)
    return statistics.fmean(lives_there(folder, name)[0][0] for name in base)


def share_of_stepping(folder: Path, names: Sequence[str], pace_seconds: float) -> float:
    """Part of these learners' time that was not stalled: 1 if the machine was never too busy."""
    lives = [life for name in names for life in lives_there(folder, name)]
    return stepping([gap for life in lives for gap in gaps_of(life, ())], pace_seconds).share


def settings(asked: Asked) -> dict[str, object]:
    """What differs from the tiny run: the size, the pace, and the end."""
    return {
        "name": "scavenging",
        "inner_steps": 4,
        "learners_min": asked.base,
        "window": {"step_seconds": asked.pace_seconds, "upload_seconds": 0.05},
        "times": {},  # a run's default waits
        "model": MODEL,
        "training": {"shards": 16, "batch_sequences": SEQUENCES, "checkpoint_steps": 64},
        "end": {"tokens": asked.budget_tokens},
    }
