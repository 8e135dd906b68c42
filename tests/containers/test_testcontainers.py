"""The contract suite's containers, really run: on docker, or on podman through its socket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from tests.containers.cluster import ROOT
from tests.containers.engine import Engine

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BODIES = "nats-container or s3-in-docker"
READY_SECONDS_MAX = 30.0


@contextmanager
def answering(engine: Engine, folder: Path) -> Iterator[dict[str, str]]:
    """The variables by which testcontainers finds an engine that answers."""
    if engine.program == "docker":
        yield {}
        return
    address = f"unix://{folder / 'podman.sock'}"
    with subprocess.Popen(["podman", "system", "service", "--time=0", address]) as service:
        try:
            _wait_for(address)
            # Podman 4.3 tells less of a container than testcontainers asks for by itself, and has
            # no use for the container that would clean up: each of ours is stopped by its test.
            yield {
                "DOCKER_HOST": address,
                "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
                "TESTCONTAINERS_RYUK_DISABLED": "true",
            }
        finally:
            service.terminate()


def test_tape_inbox_pulse_and_store_keep_their_contract_on_servers_in_containers(
    engine: Engine, images: dict[str, str], tmp_path: Path
) -> None:
    before = engine.run("ps", "--all", "--quiet")
    with answering(engine, tmp_path) as variables:
        told = subprocess.run(
            [sys.executable, "-m", "pytest", "tests/contract", "-k", BODIES, "-rs"],
            cwd=ROOT,
            env={**os.environ, **images, **variables},
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    print(told.stdout[-3000:])
    assert told.returncode == 0, told.stderr[-2000:]
    assert re.search(r"\b[0-9]{2,} passed", told.stdout)
    assert "skipped" not in told.stdout
    assert engine.run("ps", "--all", "--quiet") == before


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            docker.DockerClient(address, timeout=5).ping()
            return
        except DockerException:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.1)
