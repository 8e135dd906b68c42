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
from decodiloco.syncer.follower import load_opening
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

pytestmark = pytest.mark.timeout(280)


@dataclass
class Steps:
    """How far each learner's heartbeats say that it is."""

    of: dict[str, int] = field(default_factory=dict)
    trained: dict[str, str] = field(default_factory=dict)

    async def listen(self, pulse: Pulse) -> None:
        """Until cancelled."""
        async with aclosing(pulse.listen()) as beats:
            async for beat in beats:
                if beat.role == "learner":
                    self.of[beat.speaker] = int(beat.values["learner_step"])
                    self.trained[beat.speaker] = str(beat.values["waiting"])

    async def beyond(self, before: dict[str, int], count: int) -> None:
        """Until each learner is so many steps beyond what it was."""
        await until(
            lambda: all(self.of[name] >= step + count for name, step in before.items()),
            f"all learners step on from {before}",
        )


@asynccontextmanager
async def watched(cluster: RealCluster) -> AsyncGenerator[tuple[Follower, Steps], None]:
    """The run's tape and the learners' pulse, from outside."""
    places = await open_places(cluster.config, "watcher")
    steps = Steps()
    listening = asyncio.create_task(steps.listen(places.pulse))
    try:
        first = await places.tape.read(0, 1)
        opening = await asyncio.to_thread(load_opening, places, first[0].event)
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
    await until(lambda: set(steps.of) == {"a", "b"}, "both learners are heard")


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
        before, at = dict(steps.of), len(follower.tape)
        killed = time.monotonic()
        cluster.processes[leader].send_signal(signal.SIGKILL)
        await steps.beyond(before, 10)
        between = [e for e in follower.tape[at:] if takeover_in(e)]
        print(
            f"stepped on by 10 within {time.monotonic() - killed:.2f} s, led meanwhile: {between}"
        )
        taken = await follower.first(takeover_in, at)
        took_seconds = time.monotonic() - killed
        assert taken.event.syncer == standby  # type: ignore[union-attr]
        written = [e.writer for e in follower.tape[at : taken.position]]
        assert set(written) <= {leader, standby}
        (merge,) = await follower.merges(1, taken.position)
        merged_seconds = time.monotonic() - killed
        print(
            f"the standby leads after {took_seconds:.2f} s and merges after {merged_seconds:.2f} s"
        )
        assert merge.writer == standby
        assert cluster.processes[leader].wait() == -signal.SIGKILL
        await follower.merges(4, taken.position)
        assert [fact.fence for fact in follower.facts(SyncerTookOver)] == [1, 2]
        assert {n: one.incarnation for n, one in follower.state.learners.items()} == lives
        cluster.start("syncer", leader, f"{leader} again")
        await ended(cluster, follower, "a", "b", standby, f"{leader} again")


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
        before, learner_steps = len(follower.tape), dict(steps.of)
        cluster.server.kill()
        stepping = {n: cpu_seconds(cluster.processes[n].pid) for n in ("a", "b")}
        await until(
            lambda: all(
                cpu_seconds(cluster.processes[n].pid) > spent + 1.0 for n, spent in stepping.items()
            ),
            "the learners compute without a server",
        )
        down_at = time.monotonic()
        cluster.server = NatsServer.start(cluster.folder / "nats")
        assert cluster.server.url == cluster.config.here.nats
        (merge,) = await follower.merges(1, before)
        await steps.beyond(learner_steps, 40)
        print(f"merging again {time.monotonic() - down_at:.2f} s after the server's restart")
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
