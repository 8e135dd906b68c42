"""What the fault tests of JetStream need: a bad line, a server with accounts, a runaway writer."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from streams import nats_server
from streams.codec import seal
from streams.envelope import Envelope, genesis
from streams.jetstream import Connection, connect
from streams.provision import provision
from streams.tape import Stored, Tape, append_surely
from tests.builders import opened, round_opened


class Line:
    """A TCP line to a server that can be cut, refused, or lose what the server says."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.deaf = False  # what the server says is lost
        self.down = False  # new connections are cut at once
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Line]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Cuts all that is open, as a pulled cable would."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, far_writer]
        self._tasks.append(asyncio.create_task(self._pump(reader, far_writer, False)))
        self._tasks.append(asyncio.create_task(self._pump(far_reader, writer, True)))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_server: bool
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                if not (from_server and self.deaf):
                    writer.write(piece)
        writer.transport.abort()


class Writer:
    """Writes rounds to a tape without end, and keeps what was acknowledged."""

    def __init__(self, run: str, tape: Tape, size: int) -> None:
        self.run = run
        self.tape = tape
        self.size = size
        self.acknowledged: list[Envelope] = []

    async def write(self) -> None:
        previous = genesis(self.run)
        rounds = itertools.count()
        while True:
            batch: list[Envelope] = []
            for _ in range(self.size):
                position = len(self.acknowledged) + len(batch) + 1
                event = opened(self.run) if position == 1 else round_opened(round=next(rounds))
                batch.append(seal(position, previous, 0, "writer", None, 0.0, event))
                previous = batch[-1].digest
            assert await append_surely(self.tape, batch) == Stored(batch[-1].position)
            self.acknowledged += batch


@asynccontextmanager
async def opened_run(url: str, run: str) -> AsyncIterator[Connection]:
    """A connection to a server on which this run's streams have been made."""
    connection = await connect(url, "test")
    try:
        await provision(connection, run, ["home"])
        yield connection
    finally:
        await connection.close()


@contextmanager
def server_with_users(folder: Path, users: list[dict[str, object]]) -> Iterator[str]:
    """The address of a nats-server that knows these users and their permissions."""
    config = folder / "accounts.conf"
    config.write_text(
        'listen: "127.0.0.1:-1"\n'
        f"ports_file_dir: {json.dumps(str(folder))}\n"
        f"jetstream {{ store_dir: {json.dumps(str(folder / 'store'))} }}\n"
        "accounts { RUN: { jetstream: enabled, users: " + json.dumps(users) + " } }\n"
    )
    process = subprocess.Popen(
        [nats_server.find_binary(), "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield asyncio.run(_address(folder / f"nats-server_{process.pid}.ports"))
    finally:
        process.kill()
        process.wait()


async def _address(ports: Path) -> str:
    async with asyncio.timeout(10):
        while True:
            with suppress(OSError, ValueError):
                return _written(ports)
            await asyncio.sleep(0.01)


def _written(ports: Path) -> str:
    address: str = json.loads(ports.read_text())["nats"][0].removeprefix("nats://")
    return address


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextmanager
def raises_within(
    limit_seconds: float, error: type[Exception], match: str
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """An error that comes by itself, not by a deadline of ours that is longer than the limit."""
    start = asyncio.get_running_loop().time()
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert asyncio.get_running_loop().time() - start < limit_seconds
