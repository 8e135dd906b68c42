"""A whole cluster to be hurt: servers, lines, processes, and who watches. Built and ended here.

Every process reaches NATS by a line of its own and the store by one proxy, so that each way can be
spoiled by itself. Knows what belongs together; not what strikes it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import nats
from nats.aio.client import Client

from decodiloco.config import Config
from decodiloco.local.folder import write_config
from decodiloco.open_run import open_run
from decodiloco.training.gpt import build
from streams.jetstream import Connection, connect
from tests.chaos.soak.lines import SlowLine
from tests.chaos.soak.processes import Processes
from tests.chaos.soak.servers import Servers
from tests.chaos.soak.settings import LEARNERS, PACE_SECONDS, ROGUE, SYNCERS, tables
from tests.chaos.soak.watcher import Watcher
from tests.contract.proxy import Proxy, let_through, unharmed

RUN = "soak"
EVALUATOR = "evaluator"
PREFIX = "soak"
ENTER_SECONDS_MAX = 60.0


class Arena:
    """The running cluster of one soak."""

    def __init__(self, folder: Path, servers: Servers, proxy: Proxy, config: Config) -> None:
        self.folder = folder
        self.servers = servers
        self.proxy = proxy
        self.config = config
        self.processes = Processes(folder / "logs")
        self.lines: dict[str, SlowLine] = {}
        self.failed = True  # until somebody has seen that all held
        self.connection: Connection
        self.watcher: Watcher

    def start_learner(self, id_: str, seat: str = "", poison: str = "") -> None:
        """A learner on its seat; as a `seat` of its own it is one that nobody starts again."""
        own = bool(seat) or bool(poison)
        seat = seat or id_
        words = [*self._process("trainee", id_, seat), "--pace", str(PACE_SECONDS)]
        if poison:
            words += ["--poison", poison]
        self.processes.take(seat, words, kept=not own)

    def start_syncer(self, id_: str, seat: str = "") -> None:
        """A syncer on its seat, or a second one of this id on another."""
        self.processes.take(seat or id_, self._process("scribe", id_, seat or id_), kept=not seat)

    def start_evaluator(self) -> None:
        words = ["-m", "decodiloco.cli", "evaluator", "--config", str(self.folder / "run.toml")]
        self.processes.take(EVALUATOR, [*words, "--set", f"here.nats={self._url_for(EVALUATOR)}"])

    @contextmanager
    def entering(self, name: str) -> Iterator[Callable[[], Awaitable[None]]]:
        """Gives a wait until a file of this folder has grown: whoever writes it has come in."""
        path = self.folder / name

        def size() -> int:
            return path.stat().st_size if path.exists() else 0

        before = size()

        async def entered() -> None:
            came = await self.watcher.until(lambda: size() > before, ENTER_SECONDS_MAX)
            assert came, f"nobody came in in {ENTER_SECONDS_MAX:.0f} s: {name}"

        yield entered

    def leader(self) -> str:
        """The syncer that leads, as far as the tape tells."""
        return self.watcher.leader if self.watcher.leader in SYNCERS else SYNCERS[0]

    def standby(self) -> str:
        return next(name for name in SYNCERS if name != self.leader())

    @asynccontextmanager
    async def raw_client(self) -> AsyncIterator[Client]:
        """A plain NATS client: it says what it likes, without our ids."""
        client = await nats.connect(self.servers.nats.url, connect_timeout=5)
        try:
            yield client
        finally:
            await client.close()

    async def heal(self) -> None:
        """Takes every fault back: nobody is paused, cut, held or full any more."""
        servers = self.servers
        for disk in (servers.nats_disk, servers.store_disk):
            if not disk.why_not:
                await asyncio.to_thread(disk.empty)
        for line in self.lines.values():
            line.deaf = line.down = False
            line.delay_seconds = 0.0
        self.calm_store()
        for name in self.processes.seats:
            self.processes.resume(name)
            self.processes.let(name)
        await asyncio.to_thread(servers.start_nats)

    def calm_store(self) -> None:
        """The store answers as it is."""
        self.proxy.hardship, self.proxy.refusal = unharmed, let_through

    def _process(self, module: str, id_: str, seat: str) -> list[str]:
        return [
            *("-m", f"tests.chaos.soak.{module}", "--config", str(self.folder / "run.toml")),
            *("--id", id_, "--seat", seat, "--set", f"here.nats={self._url_for(seat)}"),
        ]

    def _url_for(self, seat: str) -> str:
        line = self.lines.get(seat)
        return line.url if line is not None else self.servers.nats.url


@asynccontextmanager
async def arena(folder: Path) -> AsyncIterator[Arena]:
    """A cluster in this folder, its run opened and everybody started. It is hurt in the body.

    What the servers stored is kept in the folder, unless the body finds that nothing failed.
    """
    servers = await asyncio.to_thread(Servers, folder)
    built: Arena | None = None
    try:
        async with AsyncExitStack() as stack:
            proxy = stack.enter_context(Proxy(servers.store.endpoint))
            built = Arena(folder, servers, proxy, _configured(folder, servers, proxy))
            stack.push_async_callback(built.processes.stop)
            for seat in (*LEARNERS, *SYNCERS, ROGUE, EVALUATOR):
                line = SlowLine(servers.nats_port)
                await stack.enter_async_context(line.open())
                built.lines[seat] = line
            os.environ.update(servers.store.variables())  # where our own readers find their keys
            await asyncio.to_thread(open_run, built.config, build(built.config.run.model))
            built.connection = await connect(servers.nats.url, "watcher")
            stack.push_async_callback(built.connection.close)
            built.watcher = Watcher(built.connection, RUN)
            for name in SYNCERS:
                built.start_syncer(name)
            for name in LEARNERS:
                built.start_learner(name)
            built.start_evaluator()
            async with asyncio.TaskGroup() as group:
                watching = [
                    group.create_task(built.watcher.follow()),
                    group.create_task(built.watcher.listen()),
                ]
                yield built
                for task in watching:
                    task.cancel()
    finally:
        await asyncio.to_thread(servers.stop, built is None or built.failed)


def _configured(folder: Path, servers: Servers, proxy: Proxy) -> Config:
    """The run.toml of this soak. Its store is reached through the proxy only."""
    here = {
        "nats": servers.nats.url,
        "store": f"{servers.store.url}/{PREFIX}",
        "store_endpoint": proxy.endpoint,
    }
    return write_config(folder, {"run": tables(RUN), "here": here})
