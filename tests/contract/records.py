"""The bodies of tape, inbox, pulse and calls under test: in memory, and on real NATS servers."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from streams.calls import Calls
from streams.envelope import Envelope
from streams.inbox import Inbox
from streams.jetstream import connect
from streams.memory import MemoryCalls, MemoryInbox, MemoryPulse, MemoryTape
from streams.provision import provision
from streams.pulse import Pulse
from streams.tape import BATCH_MAX, Tape
from tests.contract.containers import image_of, need_engine

PORT = 4222
LIMIT_SECONDS = 30.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Record:
    """The places of one run."""

    run: str
    tape: Tape
    inbox: Inbox
    pulse: Pulse
    calls: Calls


class Ground:
    """Where records are kept: in memory (no URL), or on a NATS server, or on three."""

    def __init__(self, url: str | None, replicas: int = 1) -> None:
        self.url = url
        self.replicas = replicas

    @asynccontextmanager
    async def record(self) -> AsyncIterator[Record]:
        """A run of its own, empty."""
        run = new_run()
        if self.url is None:
            memory = MemoryTape(run), MemoryInbox(run), MemoryPulse(run), MemoryCalls(run)
            yield Record(run, *memory)
            return
        connection = await connect(self.url, "test")
        try:
            await provision(connection, run, ["home"], self.replicas)
            yield Record(
                run,
                connection.tape(run),
                connection.inbox(run, "home"),
                connection.pulse(run),
                connection.calls(run),
            )
        finally:
            await connection.close()

    def tell(self, story: Callable[[Record], Awaitable[None]]) -> None:
        """Runs a test's story on an empty record, within a limit of time."""

        async def whole() -> None:
            async with asyncio.timeout(LIMIT_SECONDS), self.record() as record:
                await story(record)

        asyncio.run(whole())


def new_run() -> str:
    """A run's name that no other test uses."""
    return f"run-{os.getpid()}-{next(_numbers)}"


def write_live(url: str, run: str, tape: list[Envelope]) -> None:
    """Puts these records on the run's tape on the server."""

    async def write() -> None:
        connection = await connect(url, "test")
        try:
            await provision(connection, run, ["home"])
            for start in range(0, len(tape), BATCH_MAX):
                await connection.tape(run).append(tape[start : start + BATCH_MAX])
        finally:
            await connection.close()

    asyncio.run(write())


async def until(holds: Callable[[], Awaitable[bool]], limit_seconds: float = 20.0) -> None:
    """Waits for a condition, asked again and again."""
    async with asyncio.timeout(limit_seconds):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


@contextmanager
def nats_in_a_container() -> Iterator[str]:
    """The URL of the compose files' NATS server; skips, with the reason, without docker."""
    need_engine()
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image_of("NATS_IMAGE"))
    container = container.with_exposed_ports(PORT).with_command("-js -sd /data")
    with container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(PORT)
        yield f"nats://{host}:{port}"
