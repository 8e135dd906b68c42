"""A run under load: a nats-server and a syncer as processes, blobs in memory where there is room.

The store costs no disk, so that what is measured is the record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import psutil
import torch
from torch import nn

import decodiloco
from decodiloco.config import Config
from decodiloco.local.folder import write_config
from streams.nats_server import NatsServer

FRAGMENTS, WIDTH = 3, 32
MEMORY = Path("/dev/shm")
STOP_SECONDS_MAX = 30.0
UNSYNCED = 'jetstream {{ store_dir: {store}, sync_interval: "2m" }}'  # the server's own default


class LoadCluster:
    """One run, open, and at will its syncer. A context manager.

    `is_synced`: whether the server syncs each write to disk before it acknowledges it, as ours do.
    `is_on_disk`: whether it has its streams on a disk, or where the blobs are.
    """

    def __init__(
        self, step_seconds: float, is_synced: bool = True, is_on_disk: bool = True
    ) -> None:
        self._step_seconds = step_seconds
        self._is_synced = is_synced
        self._is_on_disk = is_on_disk
        self._stack = ExitStack()
        self._syncers: list[subprocess.Popen[bytes]] = []
        self.server: NatsServer
        self.config: Config

    def __enter__(self) -> LoadCluster:
        with ExitStack() as stack:
            memory = MEMORY if MEMORY.is_dir() else None
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
            place = None if self._is_on_disk else memory
            disk = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
            doors = "" if self._is_synced else UNSYNCED.format(store=json.dumps(f"{disk}/js"))
            self.server = NatsServer.start(disk / "nats", doors=doors)
            stack.callback(self.server.stop)
            here = {"store": f"file://{self.folder}/store", "nats": self.server.url}
            run = settings(self._step_seconds)
            self.config = write_config(self.folder, {"run": run, "here": here})
            decodiloco.open_run(self.config, small_model())
            stack.callback(self._stop_syncers)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def path(self) -> Path:
        """Where the run's config is."""
        return self.folder / "run.toml"

    @property
    def syncer(self) -> psutil.Process:
        """The syncer that was started last."""
        return psutil.Process(self._syncers[-1].pid)

    @property
    def nats(self) -> psutil.Process:
        """The server."""
        return psutil.Process(self.server.pid)

    def start_syncer(self) -> None:
        """A syncer, which takes over from the one before."""
        with (self.folder / "syncer.log").open("ab") as log:
            self._syncers.append(subprocess.Popen(
                [sys.executable, "-m", "decodiloco.cli", "syncer",
                 "--config", str(self.path), "--id", f"s{len(self._syncers)}"],
                stdout=log, stderr=log, env=one_thread(),
            ))  # fmt: skip

    def _stop_syncers(self) -> None:
        """Ends them in good order; those that do not go are killed."""
        for process in self._syncers:
            process.terminate()
        for process in self._syncers:
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def told_by(self, module: str, *arguments: object) -> dict[str, Any]:
        """What a program of this folder has to say at its end, in one line of JSON."""
        done = subprocess.run(
            [sys.executable, "-m", f"tests.bench.load.{module}", *map(str, arguments)],
            capture_output=True, text=True, env=one_thread(),
        )  # fmt: skip
        log = (self.folder / "syncer.log").read_text(encoding="utf-8")
        assert done.returncode == 0, f"{done.stderr[-4000:]}\n{log[-2000:]}"
        return cast(dict[str, Any], json.loads(done.stdout.splitlines()[-1]))


def small_model() -> nn.Module:
    """Three linear layers, a fragment each: what matters here is how often they are merged."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(FRAGMENTS)))


def settings(step_seconds: float) -> dict[str, Any]:
    """A round a step, merged whoever answers; learners on a busy machine are not given up."""
    return {
        "name": "load",
        "fragments": FRAGMENTS,
        "inner_steps": FRAGMENTS,
        "quorum": 1,
        "window": {"step_seconds": step_seconds, "upload_seconds": 0.01, "overlap": FRAGMENTS},
        "merge": {"staleness_versions_max": 8},
        "times": {
            "heartbeat_seconds": 0.5,
            "takeover_seconds": 2.0,
            "lost_seconds": 300.0,
            "orphan_seconds_max": 900.0,
        },
    }


def one_thread() -> dict[str, str]:
    """The environment of a process that computes with one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
