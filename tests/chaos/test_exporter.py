"""The exporter beside a real run: it tells merges as they come, a dead syncer, a dead server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.real_cluster import RealCluster, until

pytestmark = pytest.mark.timeout(180)


class Scraped:
    """An exporter process of a cluster's run, and its page."""

    def __init__(self, cluster: RealCluster, name: str) -> None:
        self._log = cluster.folder / f"{name}.log"
        place = str(cluster.folder / "run.toml")
        command = (sys.executable, "-m", "decodiloco.cli", "exporter", place)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0"], stdout=log, stderr=log
            )
        cluster.processes[name] = self.process

    def serves(self) -> bool:
        return self._address() is not None

    def value(self, name: str, **labels: str) -> float | None:
        """What one series says now; None where it is not there."""
        address = self._address()
        assert address is not None
        with urllib.request.urlopen(address, timeout=10) as page:
            text = page.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"decodiloco_{name}" and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None

    def _address(self) -> str | None:
        for line in self._log.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            if told.get("event") == "serves metrics":
                return str(told["at"])
        return None


@pytest.mark.long
def test_the_exporter_tells_merges_a_dead_syncer_and_a_dead_server(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path))


async def story(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        cluster.start("syncer", "one")
        cluster.start("learner", "a")
        cluster.start("learner", "b")
        exporter = Scraped(cluster, "exporter")
        await until(exporter.serves, "it serves")

        await until(lambda: (exporter.value("step") or 0) >= 6, "six merges")
        assert exporter.value("syncer_is_leader", syncer="one") == 1
        await until(lambda: exporter.value("learner_heard", learner="a") == 1, "a is heard")
        assert exporter.value("closed") == 0
        await until(  # sizes are asked for each few seconds only
            lambda: (exporter.value("stream_bytes", stream="TAPE_tiny") or 0) > 1000, "its size"
        )
        assert exporter.value("tape_lag_facts", component="exporter") is not None

        cluster.processes["one"].kill()
        await until(
            lambda: exporter.value("syncer_is_leader", syncer="one") == 0, "the syncer is missed"
        )
        merged = exporter.value("merges_total", fragment="0")
        position = exporter.value("tape_position")
        again = Scraped(cluster, "again")
        await until(again.serves, "another serves")
        await until(lambda: again.value("tape_position") == position, "it has read the tape")
        assert again.value("merges_total", fragment="0") == merged

        cluster.server.kill()
        await until(lambda: exporter.value("connected") == 0, "the server is missed")
        for one in (exporter, again):
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(20) == 0


def test_an_exporter_that_cannot_listen_says_so_in_one_line(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        taken = cluster.server.url.removeprefix("nats://")
        done = subprocess.run(
            [sys.executable, "-m", "decodiloco.cli", "exporter", str(tmp_path), "--listen", taken],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--listen {taken}" in line and "choose another" in line
