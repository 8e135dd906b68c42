"""`replay follow --verify` beside real processes: silent through every kill, loud at a lie."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from decodiloco.close import close_run
from decodiloco.places import open_places
from decodiloco.visit import address_of
from streams.nats_server import NatsServer
from tests.real_cluster import RealCluster, until

LIMIT_SECONDS = 120.0
ALARM_SECONDS_MAX = 15.0  # some tenths of a second on a quiet machine; this one may be full

pytestmark = pytest.mark.timeout(280)


class ShadowProcess:
    """One `replay follow`, its streams in files."""

    def __init__(self, cluster: RealCluster, *options: str, name: str = "shadow") -> None:
        self.folder = cluster.folder
        self.alarm = self.folder / f"{name}.alarm"
        self._out, self._err = self.folder / f"{name}.out", self.folder / f"{name}.err"
        arguments = ("follow", str(self.folder), "--verify", "--json", "--alarm", str(self.alarm))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "replay.cli", *arguments, *options],
                stdout=out,
                stderr=err,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def ended(self) -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and the objects that it printed."""
        code = self.process.wait(LIMIT_SECONDS)
        assert "Traceback" not in self.notes(), self.notes()
        return code, [json.loads(line) for line in self._out.read_text().splitlines()]

    def notes(self) -> str:
        return self._err.read_text(encoding="utf-8")


@contextmanager
def beside(cluster: RealCluster, *options: str, name: str = "shadow") -> Iterator[ShadowProcess]:
    """A shadow of the cluster's run; killed if a test fails."""
    shadow = ShadowProcess(cluster, *options, name=name)
    try:
        yield shadow
    finally:
        if shadow.process.poll() is None:
            shadow.process.kill()
            shadow.process.wait()


async def steps(cluster: RealCluster, at_least: int, from_now: bool = False) -> None:
    """Waits until the run has had so many merges, or has so many more."""
    places = await open_places(cluster.config, "watcher")
    try:
        merges, after = 0, await places.tape.last() if from_now else 0
        async with asyncio.timeout(LIMIT_SECONDS):
            async for envelope in places.tape.follow(after):
                merges += envelope.event.kind == "fragment_merged"
                if merges >= at_least:
                    return
    finally:
        await places.close()


def kill(cluster: RealCluster, name: str) -> None:
    cluster.processes[name].send_signal(signal.SIGKILL)
    cluster.processes[name].wait()


@pytest.mark.long
def test_through_kills_of_syncer_learner_and_server_it_agrees_to_the_close(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        for name in ("s1", "s2"):
            cluster.start("syncer", name)
        for name in ("a", "b"):
            cluster.start("learner", name)
        with beside(cluster) as shadow:
            asyncio.run(steps(cluster, 6))
            kill(cluster, "a")
            kill(cluster, "s1" if "took over" in cluster.log("s1") else "s2")
            asyncio.run(steps(cluster, 14))
            assert isinstance(cluster.server, NatsServer)
            cluster.server.kill()
            asyncio.run(until(lambda: "waits for the server" in shadow.notes(), "it is missed"))
            port = int(cluster.server.url.rsplit(":", 1)[1])
            cluster.server = NatsServer.start(tmp_path / "nats", port)
            cluster.start("learner", "a", "a again")
            asyncio.run(steps(cluster, 22))
            with beside(cluster, "--from", "now", name="late") as late:
                asyncio.run(until(lambda: "beginning at" in late.notes(), "it has begun"))
                asyncio.run(steps(cluster, 6, from_now=True))
                asyncio.run(close_run(address_of(str(tmp_path))))
                code, told = shadow.ended()
                late_code, late_told = late.ended()

        assert (code, late_code) == (0, 0), shadow.notes() + late.notes()
        assert told[-1]["ended"] == late_told[-1]["ended"] == "closed"
        assert told[-1]["takeovers"] >= 2
        assert "the server answers again" in shadow.notes()
        proof = cluster.verified()
        assert told[-1]["events"] == proof["events"]
        assert told[-1]["merges_checked"] == proof["merges_checked"] >= 28
        assert 0 < late_told[-1]["merges_checked"] < proof["merges_checked"]
        assert late_told[-1]["from"] > 1
        assert not shadow.alarm.exists()


@pytest.mark.parametrize(
    "lie",
    ["parameters", *(pytest.param(lie, marks=pytest.mark.long) for lie in ("state", "store"))],
)
def test_silent_corruption_in_the_syncer_is_named_within_seconds(tmp_path: Path, lie: str) -> None:
    with RealCluster(tmp_path) as cluster:
        liar = (sys.executable, "-m", "tests.chaos.lying_syncer", lie)
        cluster.spawn("liar", *liar, "syncer", "--config", str(tmp_path / "run.toml"), "--id", "s1")
        for name in ("a", "b"):
            cluster.start("learner", name)
        with beside(cluster) as shadow:
            code, told = shadow.ended()

        assert code == 1, shadow.notes()
        alarm, last = told
        assert last["first_difference"] == alarm == json.loads(shadow.alarm.read_text())
        assert (last["ok"], last["ended"]) == (False, "alarm")
        assert last["merges_checked"] == 2
        assert alarm["event"] == "fragment_merged"
        assert alarm["round"] >= 1
        assert alarm["fragment"] in range(4)
        words = {
            "parameters": "1 of ",
            "state": "the state before this merge has digest",
            "store": "the stored blob differs at byte",
        }
        assert words[lie] in alarm["alarm"], alarm
        assert alarm["seconds_after"] < ALARM_SECONDS_MAX
        assert shadow.notes().count("ALARM") == 1


def test_told_to_stop_it_ends_in_good_order(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        cluster.start("syncer", "s1")
        cluster.start("learner", "a")
        with beside(cluster) as shadow:
            asyncio.run(steps(cluster, 3))
            shadow.process.terminate()
            code, told = shadow.ended()

    assert code == 0, shadow.notes()
    assert (told[-1]["ok"], told[-1]["ended"]) == (True, "stopped")
