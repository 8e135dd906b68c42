"""Kill -9 of the leading syncer, and of the nats-server, while real learners train.

While nobody leads, or no server is there, every living learner goes on stepping; nothing that
was acknowledged is lost; the run ends in good order and is proved.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from decodiloco.places import open_places
from decodiloco.stored_opening import read_opening
from streams.envelope import Envelope
from streams.events import (
    FragmentMerged,
    LearnerLeft,
    RunClosed,
    SyncerTookOver,
)
from streams.nats_server import NatsServer
from streams.pulse import Pulse
from tests.builders import closing, hardship
from tests.hostile import Follower, following
from tests.real_cluster import RealCluster, until

LEARNERS = ("a", "b")

pytestmark = pytest.mark.timeout(280)


@dataclass
class Steps:
    """What each learner's heartbeats said of its step, and when they were heard here."""

    heard: list[tuple[float, str, int]] = field(default_factory=list)

    async def listen(self, pulse: Pulse) -> None:
        """Until cancelled."""
        async with aclosing(pulse.listen()) as beats:
            async for beat in beats:
                if beat.role == "learner":
                    step = int(beat.values["learner_step"])
                    self.heard.append((time.monotonic(), beat.speaker, step))

    def between(self, name: str, after: float, before: float = float("inf")) -> list[int]:
        """The steps that one learner told of in a stretch of time."""
        return [step for at, who, step in self.heard if who == name and after < at < before]


@asynccontextmanager
async def watched(cluster: RealCluster) -> AsyncGenerator[tuple[Follower, Steps], None]:
    """The run's tape and the learners' pulse, from outside."""
    places = await open_places(cluster.config, "watcher")
    steps = Steps()
    listening = asyncio.create_task(steps.listen(places.pulse))
    try:
        first = await places.tape.read(0, 1)
        opening = await asyncio.to_thread(read_opening, places.store, first[0].event)
        async with following(places, opening) as follower:
            yield follower, steps
    finally:
        listening.cancel()
        await places.close()


def takeover_in(envelope: Envelope) -> Envelope | None:
    return envelope if isinstance(envelope.event, SyncerTookOver) else None


async def begun(cluster: RealCluster, follower: Follower, steps: Steps) -> None:
    """Two syncers, two learners, and the first merges."""
    for name in ("one", "two"):
        cluster.start("syncer", name)
    for name in ("a", "b"):
        cluster.start("learner", name)
    await follower.merges(6)
    await until(lambda: {who for _, who, _ in steps.heard} == set(LEARNERS), "both are heard")


async def ended(cluster: RealCluster, follower: Follower, *names: str) -> None:
    """The run is closed and proved; the two learners hold its model."""
    await follower.places.inboxes["home"].say(closing())
    for name in names:
        assert await cluster.ended(name, 90) == 0, cluster.log(name)[-2000:]
    (closed,) = follower.facts(RunClosed)
    left = {fact.learner: fact.digest for fact in follower.facts(LearnerLeft)}
    assert left == {"a": closed.digest, "b": closed.digest}
    merges = [(fact.fragment, fact.version) for fact in follower.facts(FragmentMerged)]
    for fragment, newest in enumerate(follower.state.versions):
        made = [version for one, version in merges if one == fragment]
        assert made == list(range(1, newest + 1)), "every version once, in order"


def test_a_killed_leader_is_succeeded_while_all_learners_step_on(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        asyncio.run(kill_the_leader(cluster))
        assert cluster.verified()["ok"]


async def kill_the_leader(cluster: RealCluster) -> None:
    async with watched(cluster) as (follower, steps):
        await begun(cluster, follower, steps)
        leader = follower.state.leader
        standby = {"one": "two", "two": "one"}[leader]
        lives = {name: one.incarnation for name, one in follower.state.learners.items()}
        at, killed = len(follower.tape), time.monotonic()
        cluster.processes[leader].send_signal(signal.SIGKILL)
        taken = await follower.first(takeover_in, at)
        led_again = time.monotonic()
        for name in LEARNERS:
            told = steps.between(name, killed, led_again)
            assert told[-1] > told[0], f"{name} stood still while nobody led"
            print(f"{name} went from step {told[0]} to {told[-1]} while nobody led")
        assert taken.event.syncer == standby
        written = [e.writer for e in follower.tape[at : taken.position]]
        assert set(written) <= {leader, standby}
        (merge,) = await follower.merges(1, taken.position)
        merged_seconds = time.monotonic() - killed
        print(f"led again after {led_again - killed:.2f} s, merged after {merged_seconds:.2f} s")
        assert merge.writer == standby
        assert cluster.processes[leader].wait() == -signal.SIGKILL
        await follower.merges(4, taken.position)
        assert [fact.fence for fact in follower.facts(SyncerTookOver)] == [1, 2]
        assert {n: one.incarnation for n, one in follower.state.learners.items()} == lives
        cluster.start("syncer", leader, f"{leader} again")
        await ended(cluster, follower, "a", "b", standby, f"{leader} again")


@pytest.mark.long
def test_a_killed_nats_server_stops_no_learner_and_loses_no_word(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        asyncio.run(kill_the_server(cluster))
        assert cluster.verified()["ok"]


async def kill_the_server(cluster: RealCluster) -> None:
    async with watched(cluster) as (follower, steps):
        await begun(cluster, follower, steps)
        inbox = follower.places.inboxes["home"]
        acknowledged = []
        for number in range(1, 31):
            word = hardship("words before a kill", "nats", speaker="watcher", said=number)
            acknowledged.append((await inbox.say(word), word))
        before = len(follower.tape)
        await asyncio.to_thread(cluster.server.kill)
        killed = time.monotonic()
        spent = {name: cpu_seconds(cluster.processes[name].pid) for name in LEARNERS}
        await until(
            lambda: all(cpu_seconds(cluster.processes[n].pid) > spent[n] + 1.0 for n in LEARNERS),
            "the learners compute without a server",
        )
        cluster.server = await asyncio.to_thread(NatsServer.start, cluster.folder / "nats")
        assert cluster.server.url == cluster.config.here.nats
        back = time.monotonic()
        (merge,) = await follower.merges(1, before)
        print(f"no server for {back - killed:.2f} s; merging {time.monotonic() - back:.2f} s later")
        for name in LEARNERS:
            last = steps.between(name, 0.0, killed)[-1]
            await until(lambda n=name: steps.between(n, back), f"{name} is heard again")
            first = steps.between(name, back)[0]
            assert first >= last + 20, f"{name} stood still while there was no server"
            print(f"{name} went from step {last} to {first} without a server")
        assert merge.position > before
        await until(lambda: follower.state.speakers["watcher"][1] == 30, "no word is lost")
        told = [e for e in follower.tape if e.event in [word for _, word in acknowledged]]
        assert [e.source.sequence for e in told] == [n for n, _ in acknowledged]
        for name in ("one", "two", "a", "b"):
            assert cluster.processes[name].poll() is None, cluster.log(name)[-2000:]
        assert len(follower.state.learners) == 2
        await follower.merges(4)
        await ended(cluster, follower, "a", "b", "one", "two")
        for name in ("one", "two", "a", "b"):
            assert "Traceback" not in cluster.log(name)


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far: its own steps are the most of it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
