"""Plays learners against a run whose syncer and server are processes of their own.

play CONFIG LEARNERS STEP_SECONDS WARM_SECONDS SECONDS SYNCER_PID SERVER_PID: one line of JSON, what
came of so many seconds of load.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

import psutil

from decodiloco.config import load_config
from decodiloco.learner.network import Changes
from decodiloco.opening import Opening
from decodiloco.places import Places, open_places
from decodiloco.stored_opening import read_opening
from streams.events import DeltaOffered, DeltaRefused, FragmentMerged, RunOpened, learner_of
from tests.bench.load.deltas import Deltas
from tests.bench.load.player import Player

MEETING_SECONDS_MAX = 120.0
QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted up to a moment. Processor seconds are those of whole processes."""

    wall_seconds: float
    facts: int
    offers: int
    refused: int
    merges: int
    contributions: int
    syncer_seconds: float
    server_seconds: float
    player_seconds: float

    def since(self, before: Tally) -> Tally:
        """What came on top of it."""
        now, then = asdict(self), asdict(before)
        return Tally(**{name: now[name] - then[name] for name in now})


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a load.

    `wait_seconds`: from an offer said to its fact heard, the median and one in a hundred. `lag`:
    words said and not heard of at the end. `syncer_bytes`: the syncer's memory at each quarter.
    """

    tally: Tally
    wait_seconds: tuple[float, float]
    lag: int
    syncer_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Who plays, and for how long: each learner makes a step, and an offer, in `step_seconds`."""

    config: Path
    learners: int
    step_seconds: float
    warm_seconds: float
    seconds: float


class Play:
    """The learners of one run, and one follower of its tape for all of them."""

    def __init__(self, places: Places, opening: Opening, learners: int, step_seconds: float):
        deltas = Deltas(opening)
        self.players = {
            name: Player(name, opening, places, deltas, step_seconds)
            for name in (f"l{number:03}" for number in range(learners))
        }
        self._places = places
        self._step_seconds = step_seconds
        self._facts = self._offers = self._refused = self._merges = self._contributions = 0
        self._position = 0
        self._changes = Changes()

    async def run(self) -> None:
        """Until cancelled. They join once they know what the tape holds."""
        end = await self._places.tape.last()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            await self._changes.wait(lambda: self._position >= end)
            for number, player in enumerate(self.players.values()):
                first_seconds = self._step_seconds * number / len(self.players)
                group.create_task(player.play(first_seconds))

    async def met(self) -> None:
        """Returns when all have joined."""
        players = self.players.values()
        async with asyncio.timeout(MEETING_SECONDS_MAX):
            await self._changes.wait(lambda: all(player.has_joined() for player in players))

    def lag(self) -> int:
        """Words that were said, and not heard of yet."""
        return sum(player.state.in_flight is not None for player in self.players.values())

    def tally(self, syncer: psutil.Process, server: psutil.Process) -> Tally:
        return Tally(
            time.monotonic(),
            self._facts,
            self._offers,
            self._refused,
            self._merges,
            self._contributions,
            cpu_seconds(syncer),
            cpu_seconds(server),
            time.process_time(),
        )

    async def _follow(self) -> None:
        async with aclosing(self._places.tape.follow(0)) as envelopes:
            async for envelope in envelopes:
                self._count(envelope.event)
                whose = learner_of(envelope.event)
                for name in self.players if whose is None else {whose} & self.players.keys():
                    self.players[name].hear(envelope)
                self._position = envelope.position
                self._changes.ring()

    def _count(self, event: object) -> None:
        self._facts += 1
        self._offers += isinstance(event, DeltaOffered)
        self._refused += isinstance(event, DeltaRefused)
        if isinstance(event, FragmentMerged):
            self._merges += 1
            self._contributions += len(event.contributions)


def cpu_seconds(process: psutil.Process) -> float:
    """Processor seconds that a process has used so far, in all its threads."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def played(load: Load, syncer: psutil.Process, server: psutil.Process) -> Played:
    """Load for so long, after a while that is not counted."""
    places = await open_places(load_config(load.config), "load")
    try:
        opened = (await places.tape.read(0, 1))[0].event
        assert isinstance(opened, RunOpened)
        opening = read_opening(places.store, opened)
        play = Play(places, opening, load.learners, load.step_seconds)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(play.run())
            await play.met()
            await asyncio.sleep(load.warm_seconds)
            for player in play.players.values():
                player.waits.clear()
            before, sizes = play.tally(syncer, server), []
            for _ in range(QUARTERS):
                await asyncio.sleep(load.seconds / QUARTERS)
                sizes.append(syncer.memory_info().rss)
            tally, lag = play.tally(syncer, server).since(before), play.lag()
            running.cancel()
        waits = [wait for player in play.players.values() for wait in player.waits]
        cuts = quantiles(waits, n=100)
        return Played(tally, (cuts[49], cuts[98]), lag, tuple(sizes))
    finally:
        await places.close()


def main() -> None:
    """As the module says."""
    path, learners, step, warm, seconds, syncer, server = sys.argv[1:]
    load = Load(Path(path), int(learners), float(step), float(warm), float(seconds))
    told = played(load, psutil.Process(int(syncer)), psutil.Process(int(server)))
    print(json.dumps(asdict(asyncio.run(told))))


if __name__ == "__main__":
    main()
