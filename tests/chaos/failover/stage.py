"""A real cluster that is watched from outside: its tape, and when each learner's steps began.

Learners compute for some milliseconds and wait for the rest of their pace, as one does whose
accelerator works; so a late step is a stall, and not a machine with too few cores.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from decodiloco.places import open_places
from decodiloco.stored_opening import read_opening
from streams.envelope import Envelope
from streams.events import FragmentMerged, LearnerJoined, RoundOpened, SyncerTookOver
from streams.jetstream import Connection
from tests.chaos.soak.journal import entries
from tests.chaos.soak.stepping import gaps_of, lives_of
from tests.hostile import Follower, following
from tests.real_cluster import RealCluster, until
from tests.trio import Trio

PACE_SECONDS = 0.1
WATCH_SECONDS = 8.0  # for as long before a kill as after it
LIMIT_SECONDS = 240.0  # for whatever must happen some time, on the busiest machine
LEARNERS = ("a", "b", "c")
SYNCERS = ("one", "two")
SETTINGS = {
    "fragments": 4,
    "inner_steps": 16,
    "learners_min": len(LEARNERS),
    "window": {"step_seconds": PACE_SECONDS, "upload_seconds": 0.05},
    "times": {},  # a run's default waits
    "model": {"layers": 1, "width": 32, "heads": 2, "context": 32},
}


@dataclass
class Stage:
    """A run with learners and two syncers, and what happens on it."""

    cluster: RealCluster
    follower: Follower
    trio: Trio | None
    connection: Connection
    lives: dict[str, int] = field(default_factory=dict)

    @property
    def leader(self) -> str:
        return self.follower.state.leader

    def process(self, name: str) -> str:
        """What the present life of a syncer or learner is called among the processes."""
        return f"{name}-{self.lives[name]}"

    def start_syncer(self, name: str) -> None:
        self.lives[name] = self.lives.get(name, 0) + 1
        self.cluster.start("syncer", name, self.process(name))

    def start_learner(self, name: str) -> None:
        self.lives[name] = self.lives.get(name, 0) + 1
        config = str(self.cluster.folder / "run.toml")
        words = ("--config", config, "--id", name, "--seat", name, "--pace", str(PACE_SECONDS))
        module = "tests.chaos.soak.trainee"
        self.cluster.spawn(self.process(name), sys.executable, "-m", module, *words)

    def signal(self, name: str, number: int) -> float:
        """Sends a signal to the present life; when."""
        self.cluster.processes[self.process(name)].send_signal(number)
        return time.monotonic()

    async def stands_by(self, name: str) -> None:
        """Until a syncer that was started has read the tape."""
        log = self.process(name)
        await until(lambda: "standing by" in self.cluster.log(log), log, LIMIT_SECONDS)

    async def merge_under(self, fence: int) -> Envelope:
        """The first merge that a syncer with this fence, or a higher one, records."""
        return await self.follower.first(
            lambda e: e if isinstance(e.event, FragmentMerged) and e.fence >= fence else None,
            seconds=LIMIT_SECONDS,
        )

    async def takeover(self, fence: int) -> Envelope:
        return await self.follower.first(
            lambda e: e if isinstance(e.event, SyncerTookOver) and e.fence >= fence else None,
            seconds=LIMIT_SECONDS,
        )

    async def next_round(self) -> int:
        """The number of the round that is opened next."""
        return await self.follower.first(
            lambda e: e.event.round if isinstance(e.event, RoundOpened) else None,
            len(self.follower.tape),
            LIMIT_SECONDS,
        )

    async def merge_of(self, round_number: int) -> None:
        """Until this round is merged."""

        def merged(envelope: Envelope) -> Envelope | None:
            event = envelope.event
            found = isinstance(event, FragmentMerged) and event.round == round_number
            return envelope if found else None

        await self.follower.first(merged, seconds=LIMIT_SECONDS)

    async def joins(self, name: str) -> Envelope:
        """The next life of a learner."""
        return await self.follower.first(
            lambda e: e if isinstance(e.event, LearnerJoined) and e.event.learner == name else None,
            len(self.follower.tape),
            LIMIT_SECONDS,
        )

    async def calm(self) -> None:
        """Some merges, and time in which nothing is done: what comes is measured against it."""
        begun = time.monotonic()
        await self.follower.merges(3)
        await _at(begun + WATCH_SECONDS)

    async def growth_steps(self, names: Iterable[str], since: float) -> float:
        """By how many steps the longest gap between two steps grew, against the time before."""
        await _at(since + WATCH_SECONDS + PACE_SECONDS)
        grown = []
        for name in names:
            moments = self.moments(name)
            before = longest_gap(moments, since - WATCH_SECONDS, since)
            grown.append(longest_gap(moments, since, since + WATCH_SECONDS) - before)
        return max(grown) / PACE_SECONDS

    def moments(self, name: str) -> list[float]:
        """When the steps of a learner's present life began."""
        steps = entries(self.cluster.folder / "steps" / f"{name}.jsonl")
        return lives_of(steps)[-1]


def longest_gap(moments: Sequence[float], since: float, to: float) -> float:
    """The longest time between two steps of which some lies in this stretch; also an open one."""
    inside = [
        gap
        for gap, begun in zip(gaps_of([*moments, max(to, moments[-1])], ()), moments, strict=True)
        if begun + gap > since and begun < to
    ]
    assert inside, "no step was made"
    return max(inside)


async def _at(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


@asynccontextmanager
async def staged(folder: Path, with_trio: bool = False) -> AsyncIterator[Stage]:
    """A cluster in this folder at work: everybody is there, and merges are made."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    trio = await asyncio.to_thread(Trio, folder) if with_trio else None
    settings = {**SETTINGS, "tape_replicas": 3 if with_trio else 1}
    cluster = await asyncio.to_thread(lambda: RealCluster(folder, trio, **settings))
    with cluster:
        places = await open_places(cluster.config, "watcher")
        try:
            first = await places.tape.read(0, 1)
            opening = await asyncio.to_thread(read_opening, places.store, first[0].event)
            async with following(places, opening) as follower:
                (connection,) = places.held
                assert isinstance(connection, Connection)
                stage = Stage(cluster, follower, trio, connection)
                for name in SYNCERS:
                    stage.start_syncer(name)
                for name in LEARNERS:
                    stage.start_learner(name)
                await until(
                    lambda: len(follower.facts(FragmentMerged)) >= 4, "merges", LIMIT_SECONDS
                )
                yield stage
        finally:
            await places.close()
