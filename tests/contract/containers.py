"""The servers of the compose file in containers, where a docker engine answers.

The images are the compose file's own variables, NATS_IMAGE and OBJECT_STORE_IMAGE, with its
defaults: a registry of yours serves here, too. Podman's socket will do for an engine, as
tests/containers/test_testcontainers.py starts it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from decodiloco.store.s3 import S3Store
from streams.errors import Trouble
from tests.tidy.compose import variables

BUCKET = "decodiloco"
PORT = 8333
READY_SECONDS_MAX = 60.0


def need_engine() -> None:
    """Skips where no docker engine answers, and says why.

    Nothing is hidden by it: the same suites run on the same servers from the packages, as
    processes. A container is one more body of the port, which only an engine can start.
    """
    import docker
    from docker.errors import DockerException

    try:
        docker.from_env(timeout=5).ping()
    except DockerException as error:
        pytest.skip(f"no docker engine answers: {error}")


def image_of(variable: str) -> str:
    """The image that a variable of the compose file names: as set here, else its default."""
    return os.environ.get(variable) or str(variables()[variable])


@contextmanager
def running_s3(variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Bucket and endpoint of a server that lets in whoever has these keys; skips without docker."""
    need_engine()
    from testcontainers.core.container import DockerContainer

    container = (
        DockerContainer(image_of("OBJECT_STORE_IMAGE"))
        .with_exposed_ports(PORT)
        .with_command("mini -dir=/data -master.telemetry=false -s3.autoCreateBucket=false")
        .with_env("S3_BUCKET", BUCKET)
    )
    for name, value in variables.items():
        container = container.with_env(name, value)
    with container:
        address = f"{container.get_container_host_ip()}:{container.get_exposed_port(PORT)}"
        _wait_until_ready(f"http://{address}")
        yield BUCKET, f"http://{address}"


def _wait_until_ready(endpoint: str) -> None:
    """The store itself waits for an answer; we wait for the bucket and for the keys."""
    store = S3Store(f"s3://{BUCKET}/probe", endpoint, limit_seconds=READY_SECONDS_MAX)
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            store.put("ready/now", [b"ready"])
            return store.close()
        except Trouble:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.2)
