"""A tape on three servers: one of them may be killed, its leader too, and the tape goes on."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.errors import StreamUnfit, Trouble
from streams.jetstream import Connection, connect
from streams.nats_server import NatsServer, find_binary
from streams.provision import provision
from streams.tape import Stored, append_surely
from tests.builders import opened, tape_of, took_over

CONFIG = """
server_name: s{number}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/s{number}", sync_interval: always }}
feature_flags {{ js_ack_fc_v2: false }}
cluster {{ name: trio, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


class Trio:
    """Three nats-servers of one cluster, on loopback."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(6)
        self.ports, routes = ports[:3], ports[3:]
        listed = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        self.processes = []
        for number, (port, route) in enumerate(zip(self.ports, routes, strict=True)):
            config = folder / f"s{number}.conf"
            config.write_text(
                CONFIG.format(number=number, port=port, route=route, routes=listed, folder=folder)
            )
            with (folder / f"s{number}.log").open("wb") as log:
                command = [find_binary(), "-c", str(config)]
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    trio = Trio(tmp_path)
    yield trio
    trio.stop()


async def provisioned(trio: Trio, run: str) -> Connection:
    """A cluster takes some seconds to elect; until then it says no."""
    connection = await connect(trio.url, "test")
    async with asyncio.timeout(40):
        while True:
            try:
                await provision(connection, run, ["home"], replicas=3)
                return connection
            except Trouble:
                await asyncio.sleep(0.3)


async def leader_of(connection: Connection, run: str) -> int:
    info = await connection.wire.api(f"STREAM.INFO.TAPE_{run}")
    return int(info["cluster"]["leader"].removeprefix("s"))


def test_a_tape_outlives_the_server_that_leads_it(trio: Trio) -> None:
    facts = tape_of([opened(), *(took_over(fence=fence) for fence in range(1, 20))])

    async def play() -> None:
        connection = await provisioned(trio, "trial")
        tape = connection.tape("trial")
        assert await append_surely(tape, facts[:8]) == Stored(8)
        trio.processes[await leader_of(connection, "trial")].kill()
        assert await append_surely(tape, facts[8:12]) == Stored(12)
        assert await append_surely(tape, facts[12:]) == Stored(20)
        followed = []
        async for envelope in tape.follow(0):
            followed.append(envelope)
            if len(followed) == 20:
                break
        assert followed == list(facts)
        await connection.close()

    asyncio.run(play())


def test_three_replicas_on_one_server_are_refused_with_the_way_out(nats_server: NatsServer) -> None:
    async def play() -> None:
        connection = await connect(nats_server.url, "test")
        try:
            await provision(connection, "lonely", ["home"], replicas=3)
        finally:
            await connection.close()

    with pytest.raises(StreamUnfit, match=r"set run\.tape_replicas to 1"):
        asyncio.run(play())
