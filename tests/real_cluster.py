"""A small run of real processes: a nats-server, syncers and tiny learners of the built-in trainer.

Everything listens on 127.0.0.1 and lives in one folder; what was started is stopped by its pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from decodiloco.config import Config
from decodiloco.local.folder import write_config
from streams.nats_server import NatsServer
from tests.trio import Trio

STOP_SECONDS_MAX = 30.0
TEXTS = Path(json.__file__).parent / "*.py"


class RealCluster:
    """The processes of one run, by name, on a server of its own or on three. A context manager."""

    def __init__(self, folder: Path, server: NatsServer | Trio | None = None, **settings: Any):
        self.folder = folder
        self.server = server or NatsServer.start(folder / "nats")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        here = {"store": f"file://{folder}/store", "nats": self.server.url}
        try:
            self.config: Config = write_config(folder, {"run": tiny(**settings), "here": here})
            self.run("open")
        except BaseException:
            self.server.stop()
            raise

    def __enter__(self) -> RealCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.server.stop()

    def run(self, command: str) -> None:
        """A command of `decodiloco` that ends by itself."""
        done = subprocess.run(self._command(command), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    def start(self, role: str, name: str, process: str | None = None) -> None:
        """A syncer or a learner, as `process` if another one bears its name already."""
        self.spawn(process or name, *self._command(role), "--id", name)

    def spawn(self, process: str, *command: str) -> None:
        """Any command, as `process`."""
        with (self.folder / f"{process}.log").open("ab") as log:
            self.processes[process] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    async def ended(self, name: str, seconds: float = 60.0) -> int:
        """The exit code of a process that ends by itself."""
        return await asyncio.to_thread(self.processes[name].wait, seconds)

    def replay(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of `replay`."""
        return subprocess.run(
            [sys.executable, "-m", "replay.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=240,
        )

    def verified(self) -> dict[str, Any]:
        """The exported tape, proved: what `replay verify` says of it."""
        tape = self.folder / "exported.tape"
        place = f"{self.server.url}/{self.config.run.name}"
        recorded = self.replay("record", place, "-o", str(tape))
        assert recorded.returncode == 0, recorded.stderr
        store = f"file://{self.folder}/store"
        proof = self.replay("verify", str(tape), "--store", store, "--json")
        assert proof.returncode == 0, proof.stdout + proof.stderr
        told: dict[str, Any] = json.loads(proof.stdout.splitlines()[-1])
        return told

    def _command(self, command: str) -> list[str]:
        config = str(self.folder / "run.toml")
        return [sys.executable, "-m", "decodiloco.cli", command, "--config", config]


def tiny(**settings: Any) -> dict[str, Any]:
    """A run of four fragments whose learners make a step in some milliseconds."""
    return {
        "name": "tiny",
        "fragments": 4,
        "inner_steps": 40,
        "window": {"step_seconds": 0.01, "upload_seconds": 0.02, "overlap": 3},
        "outer": {"momentum": 0.5},
        "merge": {"staleness_versions_max": 8},
        "times": {
            "heartbeat_seconds": 0.2,
            "takeover_seconds": 1.5,
            "lost_seconds": 4.0,
            "orphan_seconds_max": 120.0,
            "fetch_seconds_max": 1.0,
        },
        "model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
        "training": {"data": str(TEXTS), "batch_sequences": 2, "checkpoint_steps": 1000},
        **settings,
    }


async def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Returns when a condition of this process holds; fails after so long."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to that in time: {what}"
        await asyncio.sleep(0.01)
