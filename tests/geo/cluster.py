"""The run of the geo test: hub, store and syncer on this machine, two regions in namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from decodiloco.config import Config
from decodiloco.local.folder import write_config
from decodiloco.local.s3_server import S3Server
from decodiloco.local.settings import demo_tables
from tests.geo.net import ROUND_TRIP_MS, Network
from tests.geo.servers import GEO, GeoServer, free_ports
from tests.geo.store_cache import StoreCache

REGIONS = ("east", "west")
STOP_SECONDS_MAX = 40.0
LEARNERS = {"east": ("e1", "e2"), "west": ("w1", "w2")}


class GeoCluster:
    """All processes and links. A context manager; whatever it started it stops, last first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.networks = {name: Network(name, n) for n, name in enumerate(REGIONS, start=1)}
        self.servers: dict[str, GeoServer] = {}
        self.caches: dict[str, StoreCache] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> GeoCluster:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _begin(self) -> None:
        self.s3 = self._stack.enter_context(S3Server.start(self.folder / "weed"))
        listen, leaves = (f"127.0.0.1:{port}" for port in free_ports(2))
        variables = {"LISTEN": listen, "LEAF_LISTEN": leaves}
        self.hub = GeoServer(self.folder / "hub", GEO / "hub.conf", variables)
        self._stack.callback(self.hub.stop)
        store = self.s3.endpoint.removeprefix("http://")
        for name in REGIONS:
            self._region(name, leaves, store)
        places = {"store": f"{self.s3.url}/runs", "store_endpoint": self.s3.endpoint}
        self.config = self._config("hub", {**places, "nats": self.hub.url, "region": "hub"})
        for name in REGIONS:
            here = {"store_endpoint": self.caches[name].endpoint, "nats": "nats://127.0.0.1:4222"}
            self._config(name, {**places, **here, "region": name})
        self.run("open", "--config", self.toml("hub"))
        self.spawn("s1", "syncer", "--config", self.toml("hub"), "--id", "s1")
        for name, learners in LEARNERS.items():
            for each in learners:
                words = ("learner", "--config", self.toml(name), "--id", each)
                self.spawn(each, *words, within=self.networks[name].within)

    def _region(self, name: str, leaves: str, store: str) -> None:
        network = self._stack.enter_context(self.networks[name])
        pairs = (f"{network.hub}:7422", leaves, f"{network.hub}:8333", store)
        self._line(f"{name}-near", 0, pairs, ())
        far = ("127.0.0.1:7422", f"{network.hub}:7422", "127.0.0.1:8333", f"{network.hub}:8333")
        self._line(name, ROUND_TRIP_MS / 2, far, network.within)
        network.shape(True)
        told = {"LISTEN": "0.0.0.0:4222", "REGION": name, "HUB_LEAF": "nats://127.0.0.1:7422"}
        server = GeoServer(self.folder / name, GEO / "region.conf", told, network.within)
        self._stack.callback(server.stop)
        server.await_told("JetStream using domains")
        self.servers[name] = server
        kept = self.folder / f"cache-{name}"
        cache = StoreCache(kept, "127.0.0.1:8334", "127.0.0.1:8333", network.within)
        self.caches[name] = self._stack.enter_context(cache)

    def _line(self, name: str, ms: float, pairs: Sequence[str], within: Sequence[str]) -> None:
        words = (sys.executable, "-m", "tests.geo.delay", str(ms), *pairs)
        self._started(f"line-{name}", (*within, *words))

    def _config(self, name: str, here: dict[str, str]) -> Config:
        tables = demo_tables("geo", 4, 1, None, here)
        run = tables["run"] | {"regions": ["hub", *REGIONS], "inner_steps": 24, "quorum": 1}
        run["times"] = {"lost_seconds": 150.0, "takeover_seconds": 4.0}
        del run["end"]
        folder = self.folder / f"at-{name}"
        folder.mkdir()
        return write_config(folder, {"run": run, "here": here})

    def toml(self, place: str) -> str:
        return str(self.folder / f"at-{place}" / "run.toml")

    def region_url(self, name: str) -> str:
        return f"nats://{self.networks[name].watched}:4222"

    def shape(self, name: str, is_shaped: bool) -> None:
        """A region's line becomes long and narrow, or short and wide."""
        self.networks[name].shape(is_shaped)
        told = signal.SIGUSR1 if is_shaped else signal.SIGUSR2
        self.processes[f"line-{name}"].send_signal(told)

    def run(self, *words: str, module: str = "decodiloco.cli") -> str:
        """A command that ends by itself; what it said."""
        command = [sys.executable, "-m", module, *words]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    def verified(self) -> dict[str, Any]:
        """The exported tape, proved; it stays in the folder as `geo.tape`."""
        tape = str(self.folder / "geo.tape")
        self.run("record", f"{self.hub.url}/geo", "-o", tape, module="replay.cli")
        where = ("--store", f"{self.s3.url}/runs", "--store-endpoint", self.s3.endpoint)
        words = ("verify", tape, *where, "--invariants", "--json")
        told: dict[str, Any] = json.loads(self.run(*words, module="replay.cli").splitlines()[-1])
        return told

    def spawn(self, name: str, *words: str, within: Sequence[str] = ()) -> None:
        self._started(name, (*within, sys.executable, "-m", "decodiloco.cli", *words))

    def _started(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._environment(), stdout=log, stderr=log)
        self.processes[name] = process
        self._stack.callback(_ended, process)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.s3.variables(), "OMP_NUM_THREADS": "1"}

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")


def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS_MAX
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
