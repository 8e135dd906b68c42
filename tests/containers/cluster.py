"""deploy/compose.yaml, as it stands, with a short run, seen from outside through two open ports."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.containers.engine import Engine, Project
from tests.tidy.compose import services

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("nats-1", "nats-2", "nats-3", "object-store")
SECRETS = {"AWS_ACCESS_KEY_ID": "containers", "AWS_SECRET_ACCESS_KEY": "containers-secret"}
SMALL = """
[run.model]
layers = 1
width = 32
heads = 2
context = 32

[run.training]
batch_sequences = 4
checkpoint_steps = 48
evaluate_tokens = 4096
"""


class Cluster:
    """A compose cluster that runs, and its run as somebody outside the containers sees it."""

    def __init__(self, project: Project, nats_port: int, store_port: int) -> None:
        self.project = project
        self.place = f"nats://127.0.0.1:{nats_port}/compose"
        self.endpoint = f"http://127.0.0.1:{store_port}"

    def status(self) -> dict[str, Any]:
        """What `decodiloco status` says from outside; empty while the run is not open."""
        done = self._typed("decodiloco.cli", "status", self.place, "--json")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
        return told

    def verified(self) -> dict[str, Any]:
        """What `replay verify --invariants` says from outside, from the live servers."""
        done = self._typed(
            "replay.cli", "verify", self.place, "--store", "s3://decodiloco/runs", "--invariants",
            "--json",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str, seconds: float) -> None:
        """Returns when the run's status is as asked; fails after so long with what it was."""
        deadline = time.monotonic() + seconds
        while not (told := self.status()) or not holds(told):
            assert time.monotonic() < deadline, f"it did not come to that: {what}; {told}"

    def _typed(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *words, "--store-endpoint", self.endpoint],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, **SECRETS, "OMP_NUM_THREADS": "1"},
            check=False,
        )


@contextmanager
def running(
    engine: Engine, folder: Path, images: Mapping[str, str], steps: int
) -> Iterator[Cluster]:
    """The whole cluster, up; down again, with its volumes, at the end."""
    nats_port, store_port = _free_ports(2)
    project = Project(engine, _written(folder, images, steps, nats_port, store_port), "trial")
    try:
        project.compose("up", "-d", "--no-build", *SERVERS)
        with project.health_checked(SERVERS):
            project.compose("up", "-d", "--no-build", *_roles(), seconds=300)
            yield Cluster(project, nats_port, store_port)
    except BaseException:
        for service in (*SERVERS, *_roles()):
            print(f"--- {service}\n{project.log(service)[-2000:]}")
        raise
    finally:
        project.compose("down", "-v", "-t", "5", check=False)


def _roles() -> tuple[str, ...]:
    return tuple(
        name
        for name, service in services().items()
        if name not in SERVERS and not service.get("profiles")
    )


def _written(
    folder: Path, images: Mapping[str, str], steps: int, nats_port: int, store_port: int
) -> Path:
    """A copy of deploy/ with secrets, images, a shorter run, and two ports open on 127.0.0.1."""
    copy = folder / "deploy"
    shutil.copytree(ROOT / "deploy", copy)
    _write(copy / ".env", "".join(f"{name}={image}\n" for name, image in images.items()))
    _write(copy / "store.env", "".join(f"{name}={text}\n" for name, text in SECRETS.items()))
    ports = {
        "nats-1": {"ports": [f"127.0.0.1:{nats_port}:4222"]},
        "object-store": {"ports": [f"127.0.0.1:{store_port}:8333"]},
    }
    _write(copy / "compose.override.yaml", yaml.safe_dump({"services": ports}))
    toml = (copy / "run.toml").read_text(encoding="utf-8")
    assert toml.count("steps = 180") == 1
    toml = toml.replace("steps = 180", f"steps = {steps}")
    _write(copy / "run.toml", toml.replace("[here]", f"{SMALL}\n[here]"))
    return copy


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
