"""Three nats-servers of one cluster on loopback, each of which may be killed and started again."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from streams.errors import PermissionDenied, Trouble
from streams.jetstream import Connection, connect
from streams.link import Declined
from streams.nats_server import find_binary

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
CONFIG = """
server_name: s{number}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: {store}, sync_interval: always }}
feature_flags {{ js_ack_fc_v2: false }}
cluster {{ name: trio, listen: "127.0.0.1:{route}", routes: [{routes}] }}
{doors}
"""


class Trio:
    """Servers s0, s1 and s2. Each keeps its ports and its store when it is started again.

    Configuration and logs lie in `folder`, what is stored lies there or in `stores`.
    """

    def __init__(self, folder: Path, doors: str = "", stores: Path | None = None) -> None:
        ports = free_ports(6)
        self.folder = folder
        self.ports, routes = ports[:3], ports[3:]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        listed = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        for number in range(3):
            config = CONFIG.format(
                number=number,
                port=self.ports[number],
                store=json.dumps(str((stores or folder) / f"s{number}")),
                route=routes[number],
                routes=listed,
                doors=doors,
            )
            (folder / f"s{number}.conf").write_text(config)
            self.start(number)
        try:
            asyncio.run(self.ready())
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Trio:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)

    def start(self, number: int) -> None:
        """Starts one server, or starts it again."""
        with (self.folder / f"s{number}.log").open("ab") as log:
            command = [find_binary(), "-c", str(self.folder / f"s{number}.conf")]
            self.processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        """`kill -9`."""
        self.processes[number].kill()
        self.processes[number].wait()

    def terminate(self, number: int) -> None:
        """Stops one in good order: it hands over what it leads."""
        self.processes[number].terminate()
        self.processes[number].wait(STOP_SECONDS_MAX)

    def stop(self) -> None:
        for number in self.processes:
            self.kill(number)

    def log(self, number: int) -> str:
        return (self.folder / f"s{number}.log").read_text(encoding="utf-8")

    async def ready(self) -> None:
        """Until all listen and the cluster has a leader; a new one takes some seconds to elect."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                return await self._answers()
            except Trouble:
                assert time.monotonic() < deadline, self.log(0)[-2000:]

    async def _answers(self) -> None:
        try:
            connection = await connect(self.url, "trio")
        except PermissionDenied:  # it listens; whoever has a key will wait for its leader
            return
        try:
            with suppress(Declined):  # no such stream, says the leader
                await connection.wire.ask("STREAM.INFO.none")
        finally:
            await connection.close()


async def leader_of(connection: Connection, stream: str) -> int:
    """The number of the server that leads a stream."""
    info = await connection.wire.ask(f"STREAM.INFO.{stream}")
    return int(info["cluster"]["leader"].removeprefix("s"))


async def whole(connection: Connection, stream: str) -> None:
    """Returns when all three hold a stream and have caught up with its leader."""
    async with asyncio.timeout(READY_SECONDS_MAX):
        while True:
            try:
                info = await connection.wire.ask(f"STREAM.INFO.{stream}")
                others = info["cluster"].get("replicas", [])
                if len(others) == 2 and all(o["current"] and not o.get("offline") for o in others):
                    return
            except Trouble:
                pass
            await asyncio.sleep(0.05)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
