"""The power is cut while facts and words are written: what a nats-server acknowledged is there.

With our configuration, which syncs before each answer; without that line the same cut takes all.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from streams import nats_server
from streams.errors import StreamMissing
from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.provision import provision
from tests.chaos.power import CutDisk
from tests.contract.witnesses import Witnesses, nothing_is_lost, witnesses
from tests.trio import Trio

CUTS = 10
SYNC = "sync_interval: always"

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class One:
    """A nats-server as we start it, on a disk."""

    replicas = 1

    def __init__(self, disk: CutDisk) -> None:
        self._folder = disk.place / "nats"
        self.start()

    @property
    def pids(self) -> Sequence[int]:
        return [self._server.pid]

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server = NatsServer.start(self._folder)
        self.url = self._server.url  # its port may have been lost, too


class Three:
    """A cluster of three, all on the disk that loses its power."""

    replicas = 3

    def __init__(self, disk: CutDisk) -> None:
        self._trio = Trio(disk.place.parent, stores=disk.place)
        self.url = self._trio.url

    @property
    def pids(self) -> Sequence[int]:
        return [process.pid for process in self._trio.processes.values()]

    def kill(self) -> None:
        self._trio.stop()

    def start(self) -> None:
        for number in range(3):
            self._trio.start(number)
        asyncio.run(self._trio.ready())


@pytest.mark.parametrize("kind", [One, Three])
def test_ten_power_cuts_take_nothing_that_was_acknowledged(
    tmp_path: Path, kind: type[One] | type[Three]
) -> None:
    for number in range(CUTS):
        with left_by_a_cut(tmp_path / str(number), kind, number) as (servers, seen):
            asyncio.run(nothing_is_lost(servers.url, seen))


def test_a_power_cut_does_take_what_was_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SYNC in nats_server._CONFIG
    monkeypatch.setattr(nats_server, "_CONFIG", nats_server._CONFIG.replace(SYNC, ""))
    with left_by_a_cut(tmp_path / "unsynced", One, 0) as (servers, seen):
        with pytest.raises((AssertionError, StreamMissing)) as lost:
            asyncio.run(nothing_is_lost(servers.url, seen))
        print(f"without {SYNC}: {lost.value}")


@contextmanager
def left_by_a_cut(
    folder: Path, kind: type[One] | type[Three], seed: int
) -> Iterator[tuple[One | Three, Witnesses]]:
    """Servers that run again on what a cut has left of their disk, and who wrote before it."""
    with CutDisk(folder) as disk:
        servers = kind(disk)
        try:
            seen = asyncio.run(_write_until_the_cut(servers, disk, random.Random(seed)))
            servers.kill()
            disk.return_of_power()
            servers.start()
            facts, words = len(seen.writer.acknowledged), len(seen.speaker.acknowledged)
            print(f"cut {seed} of {kind.__name__}: {facts} facts, {words} words acknowledged")
            yield servers, seen
        finally:
            servers.kill()


async def _write_until_the_cut(
    servers: One | Three, disk: CutDisk, draw: random.Random
) -> Witnesses:
    run = "cut"
    connection = await connect(servers.url, "test")
    await provision(connection, run, ["home"], servers.replicas)
    async with witnesses(connection, run, draw.choice((1, 20, 150))) as seen:
        await seen.go_on(draw.randint(5, 120))
        for pid in servers.pids:  # a moment in which nothing is written: the copy is of one moment
            os.kill(pid, signal.SIGSTOP)
        await seen.see(lambda: all(_stopped(pid) for pid in servers.pids))
        disk.cut()
    await connection.close()
    return seen


def _stopped(pid: int) -> bool:
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
