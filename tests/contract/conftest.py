"""Real servers for the contract tests: one of each per session, on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from decodiloco.local.s3_server import S3Server
from streams.nats_server import NatsServer
from tests.contract.containers import running_s3
from tests.contract.records import Ground, nats_in_a_container
from tests.trio import Trio


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with one bucket; its keys stand where botocore looks for them."""
    with (
        pytest.MonkeyPatch.context() as patch,
        S3Server.start(tmp_path_factory.mktemp("s3")) as server,
    ):
        for name, value in server.variables().items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def s3_container(s3_server: S3Server) -> Iterator[tuple[str, str]]:
    """Bucket and endpoint of the compose files' S3 server; skips where no docker engine answers.

    It has the same keys as `s3_server`, since botocore's environment can hold only one pair.
    """
    with running_s3(s3_server.variables()) as place:
        yield place


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server with JetStream, shared by all tests: each uses a run of its own."""
    server = NatsServer.start(tmp_path_factory.mktemp("nats"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """A cluster of three NATS servers, shared by all tests: whoever kills one starts it again."""
    with Trio(tmp_path_factory.mktemp("trio")) as trio:
        yield trio


@pytest.fixture(scope="session", params=["memory", "nats", "nats-of-three", "nats-container"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Every body of tape, inbox and pulse; the container's skips where no docker engine answers."""
    if request.param == "memory":
        yield Ground(None)
    elif request.param == "nats":
        yield Ground(request.getfixturevalue("nats_server").url)
    elif request.param == "nats-of-three":
        yield Ground(request.getfixturevalue("trio").url, replicas=3)
    else:
        with nats_in_a_container() as url:
            yield Ground(url)
