"""Real mergers beside a real syncer: they merge, one is killed -9, and the run is proved."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from decodiloco.local.settings import as_toml
from decodiloco.places import open_places
from tests.real_cluster import RealCluster, tiny, until

pytestmark = pytest.mark.timeout(280)

STEPS = 20


async def merges_of(cluster: RealCluster, merger: str, merges: int) -> None:
    """Waits until this merger says that it has done so many merges."""
    places = await open_places(cluster.config, "watcher")
    try:
        async with asyncio.timeout(120), aclosing(places.pulse.listen()) as beats:
            async for beat in beats:
                is_it = (beat.role, beat.speaker) == ("merger", merger)
                if is_it and beat.count("merges") >= merges:
                    return
    finally:
        await places.close()


def test_mergers_merge_and_one_that_is_killed_is_not_missed(tmp_path: Path) -> None:
    async def story(cluster: RealCluster) -> None:
        for name in ("m1", "m2"):
            cluster.start("merger", name)
            await merges_of(cluster, name, 0)
        cluster.start("syncer", "syncer")
        for name in ("a", "b"):
            cluster.start("learner", name)
        await merges_of(cluster, "m1", 3)
        await merges_of(cluster, "m2", 1)
        assert "merging here" not in cluster.log("syncer")
        cluster.processes["m1"].kill()
        for name in ("a", "b", "syncer", "m2"):
            assert await cluster.ended(name) == 0, cluster.log(name)

    with RealCluster(tmp_path, end={"steps": STEPS}) as cluster:
        asyncio.run(story(cluster))
        proof = cluster.verified()
    assert proof["ok"] and proof["merges"] == proof["merges_checked"] >= STEPS


class Up:
    """`decodiloco up` with two mergers, for a run that ends when it is told to."""

    command = (sys.executable, "-m", "decodiloco.cli")

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        config = folder / "run.toml"
        here = {"nats": "nats://127.0.0.1:0", "store": f"file://{self.folder}/store"}
        config.write_text(as_toml({"run": tiny(), "here": here}), encoding="utf-8")
        words = ("--config", str(config), "--dir", str(self.folder), "--json")
        counts = ("--learners", "1", "--syncers", "1", "--mergers", "2")
        self.process = subprocess.Popen(
            [*self.command, "up", *words, *counts], stdout=subprocess.PIPE, text=True
        )

    def pids(self) -> dict[str, int]:
        """Process ids by role, as the supervisor keeps them."""
        register = self.folder / "processes.json"
        return {name: pid for name, pid, _ in json.loads(register.read_text("utf-8"))}

    def lives(self, merger: str) -> int:
        """How often this merger has begun to serve."""
        log = self.folder / "logs" / f"merger-{merger}.log"
        return log.read_text("utf-8").count("merges for the run's syncer") if log.exists() else 0

    def told(self, *words: str) -> str:
        """What a command on the run folder says."""
        done = subprocess.run(
            [*self.command, words[0], str(self.folder), *words[1:]],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def heard(self) -> list[str]:
        """The mergers that `status` names."""
        report: dict[str, Any] = json.loads(self.told("status", "--json"))
        return [one["merger"] for one in report["mergers"]]


@pytest.mark.long
def test_up_keeps_its_mergers_alive_and_leaves_none(tmp_path: Path) -> None:
    cluster = Up(tmp_path)
    try:
        asyncio.run(until(lambda: cluster.lives("m1") * cluster.lives("m2") > 0, "two serve", 120))
        killed = cluster.pids()["merger-m1"]
        os.kill(killed, signal.SIGKILL)
        asyncio.run(until(lambda: cluster.lives("m1") == 2, "m1 is there again", 120))
        asyncio.run(until(lambda: cluster.heard() == ["m1", "m2"], "status names both"))
        pids = cluster.pids()
        cluster.told("close")
        said, _ = cluster.process.communicate(timeout=120)
    finally:
        cluster.process.terminate()
        cluster.process.wait(120)

    assert cluster.process.returncode == 0, said
    assert json.loads(said)["digests_equal"] is True
    assert killed != pids["merger-m1"]
    assert not [name for name, pid in pids.items() if psutil.pid_exists(pid)]
