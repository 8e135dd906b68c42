"""Two syncers at once, real processes on a real server, paused for longer than a takeover takes.

The leader is stopped (SIGSTOP) again and again, and let go on when the other leads. The tape
must not fork, nothing may be merged twice, and the loser says that it stands down.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from decodiloco.config import Config
from decodiloco.local.folder import write_config
from decodiloco.places import Places, open_places
from decodiloco.syncer.machine import begin, fold
from streams.events import FragmentMerged, RunClosing, SyncerTookOver
from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.provision import provision
from tests.scripted import Story, config_of, open_story

TAKEOVER_SECONDS = 1.0
T = TypeVar("T")

pytestmark = pytest.mark.timeout(280)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer.start(tmp_path / "nats")
    yield server
    server.stop()


class TwoSyncers:
    """Two syncer processes of one run, told apart by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        command = (sys.executable, "-m", "decodiloco.cli", "syncer", "--config")
        self.processes[name] = subprocess.Popen(
            [*command, str(self.folder / "run.toml"), "--id", name], stdout=log, stderr=log
        )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(30)


def settings(folder: Path, server: NatsServer) -> Config:
    times = {
        "heartbeat_seconds": 0.2,
        "takeover_seconds": TAKEOVER_SECONDS,
        "lost_seconds": 60.0,
        "orphan_seconds_max": 600.0,
    }
    here = {"store": f"file://{folder}/store", "nats": server.url}
    config = config_of("duel", here, times=times, end={})
    tables = {"run": config.run.model_dump(mode="json", exclude_none=True), "here": here}
    return write_config(folder, tables)


async def come(talk: asyncio.Task[None], waited: Coroutine[Any, Any, T]) -> T:
    """What is waited for, unless the learners fall silent first."""
    task = asyncio.ensure_future(waited)
    await asyncio.wait({talk, task}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    if talk.done():
        talk.result()
    assert task.done(), "it did not come to that in time"
    return task.result()


async def leader(places: Places, after: int) -> tuple[str, int]:
    """The next syncer that takes over after a position."""
    async for envelope in places.tape.follow(after):
        if isinstance(envelope.event, SyncerTookOver):
            return envelope.event.syncer, envelope.position
    raise AssertionError


async def next_merge(places: Places, after: int) -> tuple[str, int]:
    """Who writes the next merge after a position, and where."""
    async for envelope in places.tape.follow(after):
        if isinstance(envelope.event, FragmentMerged):
            return envelope.writer, envelope.position
    raise AssertionError


async def duel(config: Config, syncers: TwoSyncers, seconds: float) -> tuple[Story, int]:
    """Pauses whoever leads for `seconds`; the story and how often the lead changed."""
    connection = await connect(config.here.nats, "test")
    await provision(connection, config.run.name, config.run.regions)
    await connection.close()
    places = await open_places(config, "test")
    story = await open_story(config, places)
    talk = asyncio.create_task(story.learners())
    for name in ("one", "two"):
        syncers.start(name)
    name, position = await come(talk, leader(places, 0))
    deadline = time.monotonic() + seconds
    changes = 0
    while time.monotonic() < deadline:
        name, position = await come(talk, next_merge(places, position))
        syncers.processes[name].send_signal(signal.SIGSTOP)
        paused, (name, position) = name, await come(talk, leader(places, position))
        assert name != paused
        changes += 1
        name, position = await come(talk, next_merge(places, position))
        syncers.processes[paused].send_signal(signal.SIGCONT)
    word = RunClosing(speaker="operator", life=1, said=1, reason="asked")
    await places.inboxes["home"].say(word)
    await asyncio.wait_for(talk, 60)
    for process in syncers.processes.values():
        assert await asyncio.to_thread(process.wait, 60) == 0
    return story, changes


async def check(story: Story, syncers: TwoSyncers, changes: int) -> None:
    state, merges, fences = begin(story.opening), [], []
    while records := await story.places.tape.read(state.position):
        for envelope in records:
            state = fold(state, envelope)
            if isinstance(envelope.event, FragmentMerged):
                merges.append((envelope.event.fragment, envelope.event.version))
            if isinstance(envelope.event, SyncerTookOver):
                fences.append(envelope.event.fence)
    assert len(set(merges)) == len(merges) == state.step > changes
    assert fences == list(range(1, len(fences) + 1)) and len(fences) > changes
    assert state.closed is not None
    said = syncers.log("one") + syncers.log("two")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    stood_down = [line for line in lines if "standing down" in line["event"]]
    assert len(stood_down) >= changes - 1
    assert all(line["fence"] > line["my_fence"] for line in stood_down)
    assert "Traceback" not in said
    await story.places.close()


def play(folder: Path, server: NatsServer, seconds: float) -> None:
    config = settings(folder, server)
    syncers = TwoSyncers(folder)

    async def both() -> None:
        story, changes = await duel(config, syncers, seconds)
        await check(story, syncers, changes)

    try:
        asyncio.run(both())
    finally:
        syncers.stop()


def test_a_paused_leader_is_succeeded_and_stands_down(tmp_path: Path, server: NatsServer) -> None:
    play(tmp_path, server, seconds=8.0)


@pytest.mark.long
def test_two_minutes_of_pauses_fork_nothing(tmp_path: Path, server: NatsServer) -> None:
    play(tmp_path, server, seconds=120.0)
