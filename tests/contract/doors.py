"""A nats-server whose doors are shut: accounts and keys as `decodiloco keys` makes them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from decodiloco.config import Config, parse_config
from decodiloco.keys import ACCOUNTS, Wanted, apply_keys, make_keys
from streams.address import with_files
from streams.jetstream import Connection, connect
from streams.nats_server import NatsServer
from streams.provision import provision
from tests.trio import Trio

LEARNERS = ("a", "b")
INCLUDED = f'accounts {{ include "./{ACCOUNTS}" }}\n'


@dataclass(frozen=True)
class Doors:
    """A server that knows the keys of one run, and where they lie."""

    config: Config
    server: NatsServer | Trio
    keys: Path

    @property
    def run(self) -> str:
        return self.config.run.name

    def key(self, name: str) -> str:
        return str(self.keys / f"{name}.nk")

    def url(self, name: str) -> str:
        return with_files(self.server.url, self.key(name), None)

    def config_of(self, name: str, **here: object) -> Config:
        """The run's config on the machine of somebody who has a key."""
        told = {"nats": self.server.url, "nats_key": self.key(name), **here}
        return self.config.model_copy(update={"here": self.config.here.model_copy(update=told)})

    @asynccontextmanager
    async def enter(self, *names: str) -> AsyncIterator[Sequence[Connection]]:
        """Connections of several, each named after its key."""
        connections = []
        try:
            for name in names:
                connections.append(await connect(self.url(name), name))
            yield connections
        finally:
            for connection in connections:
                await connection.close()

    async def open(self) -> None:
        """The run's streams and its learners' readers, made by the operator."""
        async with self.enter("operator") as (operator,):
            run = self.config.run
            await provision(operator, run.name, run.regions, run.tape_replicas)
        await apply_keys(self.config_of("operator"), self.keys)


@contextmanager
def shut(
    folder: Path,
    tables: dict[str, object] | None = None,
    learners: Sequence[str] = LEARNERS,
    doors: str = "",
    mergers: Sequence[str] = (),
) -> Iterator[Doors]:
    """A server in a folder that lets in who has a key, with further lines of configuration."""
    config, keys = _made(folder, tables or {"name": "shut"}, learners, mergers)
    server = NatsServer.start(folder / "nats", doors=INCLUDED + doors)
    try:
        yield Doors(config, server, keys)
    finally:
        server.stop()


@contextmanager
def three_shut(folder: Path) -> Iterator[Doors]:
    """Three servers that let in who has a key, for a tape with a replica on each."""
    config, keys = _made(folder, {"name": "shut", "tape_replicas": 3}, LEARNERS)
    with Trio(folder / "nats", INCLUDED) as trio:
        yield Doors(config, trio, keys)


def _made(
    folder: Path,
    tables: dict[str, object],
    learners: Sequence[str],
    mergers: Sequence[str] = (),
) -> tuple[Config, Path]:
    """A run's config and its keys, and in `nats` what its servers must know of them."""
    config = parse_config({"run": tables, "here": {"store": f"file://{folder}/blobs"}})
    keys = folder / "keys"
    wanted = [Wanted("learner", each) for each in learners]
    make_keys(config, keys, [*wanted, *(Wanted("merger", each) for each in mergers)])
    (folder / "nats").mkdir()
    shutil.copy(keys / ACCOUNTS, folder / "nats")
    return config, keys
