"""A learner's life among real processes: killed at each point, preempted, succeeded, cut off."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from decodiloco.training.corpus import read_corpus
from decodiloco.training.trainer import batches_of
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
)
from streams.nats_server import NatsServer
from tests.chaos.dying_learner import POINTS
from tests.chaos.test_takeover import watched
from tests.data_positions import check_data
from tests.real_cluster import RealCluster, tiny, until

START_SECONDS = 300.0  # on a machine with much else to do
TRAINING = {**tiny()["training"], "checkpoint_steps": 200}

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def start_dying(cluster: RealCluster) -> None:
    """Learner `a`, which dies at each point of its life before it lives on."""
    command = [sys.executable, "-m", "tests.chaos.dying_learner", "learner"]
    config = str(cluster.folder / "run.toml")
    with (cluster.folder / "a.log").open("ab") as log:
        cluster.processes["a"] = subprocess.Popen(
            [*command, "--config", config, "--id", "a"],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def per_pass(cluster: RealCluster, slots: dict[str, int]) -> dict[str, int]:
    """Batches in a pass of each learner's shard."""
    run = cluster.config.run
    corpus = read_corpus(run.training, run.model.context)
    return {
        name: batches_of(run.training, run.model.context, corpus, slot).per_pass
        for name, slot in slots.items()
    }


def test_killed_at_any_point_a_learner_goes_on_where_its_last_word_stands(tmp_path: Path) -> None:
    with RealCluster(tmp_path, training=TRAINING) as cluster:
        asyncio.run(die_at_every_point(cluster))
        assert cluster.verified()["ok"]
        tape = str(tmp_path / "exported.tape")
        checked = cluster.replay(
            "verify", tape, "--store", f"file://{tmp_path}/store", "--invariants"
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


async def die_at_every_point(cluster: RealCluster) -> None:
    async with watched(cluster) as (follower, _):
        cluster.start("syncer", "one")
        cluster.start("learner", "b")
        start_dying(cluster)
        last = f"died: {list(POINTS)[-1]}"
        await until(lambda: last in cluster.log("a"), "it died at every point", START_SECONDS)
        lives = len(follower.facts(LearnerJoined))
        assert lives >= len(POINTS) + 1
        at = len(follower.tape)
        await follower.first(lambda envelope: offer_of("a", envelope), at, START_SECONDS)
        await follower.merges(8)
        for name in ("a", "b"):
            cluster.processes[name].terminate()
        assert [await cluster.ended(name) for name in ("a", "b")] == [0, 0]
        await follower.first(lambda envelope: farewell_of("b", envelope))
        slots = {one.learner: one.slot for one in follower.facts(LearnerJoined)}
        counts = check_data(follower.tape, per_pass(cluster, slots))
        assert counts["a"] > 0 and counts["b"] > 0
        print(f"{lives} lives, {len(follower.tape)} facts, batches merged: {counts}")


def offer_of(name: str, envelope: Envelope) -> Envelope | None:
    event = envelope.event
    return envelope if isinstance(event, DeltaOffered) and event.learner == name else None


def farewell_of(name: str, envelope: Envelope) -> LearnerLeft | None:
    event = envelope.event
    return event if isinstance(event, LearnerLeft) and event.learner == name else None


def test_a_notice_is_met_in_time_whether_anybody_answers_or_not(tmp_path: Path) -> None:
    with RealCluster(tmp_path, training=TRAINING) as cluster:
        asyncio.run(be_preempted(cluster))


async def be_preempted(cluster: RealCluster) -> None:
    async with watched(cluster) as (follower, _):
        cluster.start("syncer", "one")
        for name in ("a", "b", "c", "d"):
            cluster.start("learner", name)
        for name in ("a", "b", "c", "d"):
            await follower.first(
                lambda envelope, name=name: offer_of(name, envelope), 0, START_SECONDS
            )
        await follower.merges(4)
        assert await ends_within(cluster, "a", 30.0) == 0
        left = await follower.first(lambda envelope: farewell_of("a", envelope))
        stored = [one for one in follower.facts(CheckpointStored) if one.learner == "a"]
        assert (left.reason, left.learner_step) == ("preempted", stored[-1].learner_step)

        cluster.start("learner", "b", "b again")
        assert await cluster.ended("b", START_SECONDS) == 3
        assert "a newer life of learner b joined at position" in cluster.log("b")
        await follower.first(lambda envelope: offer_of("b", envelope), len(follower.tape), 60.0)

        await asyncio.to_thread(cluster.server.kill)
        assert await ends_within(cluster, "c", 30.0) == 3
        assert "this learner stopped (preempted), but no inbox took its farewell" in cluster.log(
            "c"
        )
        cluster.processes["d"].terminate()
        cluster.processes["d"].terminate()  # may be one with the first; so once more, until it ends
        asked = time.monotonic()
        await until(lambda: ended_or_asked_again(cluster, "d"), "d ends at once")
        print(f"at a second signal it ended within {time.monotonic() - asked:.2f} s")
        assert cluster.processes["d"].returncode == 128 + signal.SIGTERM
        assert "asked to stop a second time: ended at once" in cluster.log("d")
        for name in ("a", "b", "c", "d"):
            assert "Traceback" not in cluster.log(name), cluster.log(name)
        cluster.server = await asyncio.to_thread(NatsServer.start, cluster.folder / "nats")
        assert await ends_within(cluster, "b again", 30.0) == 0


def ended_or_asked_again(cluster: RealCluster, name: str) -> bool:
    process = cluster.processes[name]
    if process.poll() is None:
        process.terminate()
    return process.returncode is not None


async def ends_within(cluster: RealCluster, name: str, seconds: float) -> int:
    """Asks a process to stop as a spot machine is; its exit code."""
    cluster.processes[name].terminate()
    asked = time.monotonic()
    code = await cluster.ended(name, seconds)
    print(f"{name} ended {time.monotonic() - asked:.2f} s after its notice, with exit code {code}")
    return code


def test_cut_off_a_learner_trains_on_within_bounds_and_comes_back(tmp_path: Path) -> None:
    times = {**tiny()["times"], "orphan_seconds_max": 20.0}
    with RealCluster(tmp_path, training=TRAINING, times=times) as cluster:
        asyncio.run(be_cut_off(cluster))
        assert cluster.verified()["ok"]


async def be_cut_off(cluster: RealCluster) -> None:
    async with watched(cluster) as (follower, steps):
        cluster.start("syncer", "one")
        for name in ("a", "b"):
            cluster.start("learner", name)
        await follower.first(lambda envelope: offer_of("b", envelope), 0, START_SECONDS)
        await follower.first(lambda envelope: offer_of("a", envelope), 0, START_SECONDS)
        await follower.merges(6)
        await until(lambda: {who for _, who, _ in steps.heard} == {"a", "b"}, "both are heard")
        learner = psutil.Process(cluster.processes["a"].pid)
        await asyncio.to_thread(cluster.server.kill)
        cut = time.monotonic()
        await until(lambda: "waits for the syncer" in cluster.log("a"), "it says so", 30)
        before_bytes = learner.memory_info().rss
        await until(lambda: time.monotonic() - cut > 14.0, "ten seconds more")
        grown_bytes = learner.memory_info().rss - before_bytes
        print(f"resident memory grew by {grown_bytes / 2**20:.2f} MiB while it was cut off")
        assert grown_bytes < 8 * 2**20
        at = len(follower.tape)
        cluster.server = await asyncio.to_thread(NatsServer.start, cluster.folder / "nats")
        offer = await follower.first(lambda envelope: offer_of("a", envelope), at)
        await follower.merges(4, offer.position)
        assert len(follower.facts(LearnerJoined)) == 2, "nobody had to join again"

        await asyncio.to_thread(cluster.server.kill)
        codes = [await cluster.ended(name, 90) for name in ("a", "b")]
        assert codes == [3, 3], cluster.log("a")[-2000:]
        assert "nothing was heard for 2" in cluster.log("a")
        assert "see that its NATS server and a syncer are running, then join again" in (
            cluster.log("a")
        )
        cluster.server = await asyncio.to_thread(NatsServer.start, cluster.folder / "nats")
        at = len(follower.tape)
        for name in ("a", "b"):
            cluster.start("learner", name, f"{name} again")
        await follower.first(lambda envelope: offer_of("a", envelope), at, START_SECONDS)
        await follower.merges(4, at)
        for name in ("a again", "b again"):
            assert await ends_within(cluster, name, 30.0) == 0
        await follower.first(lambda envelope: farewell_of("b", envelope), at)
        slots = {one.learner: one.slot for one in follower.facts(LearnerJoined)}
        counts = check_data(follower.tape, per_pass(cluster, slots))
        print(f"{len(follower.facts(FragmentMerged))} merges, batches merged: {counts}")
