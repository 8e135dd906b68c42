"""deploy/compose.yaml, as it stands, with a short run, seen from outside through open ports."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from streams.errors import Trouble
from streams.events import FragmentMerged, HardshipInjected, RunClosed
from streams.jetstream import Connection, connect
from tests.containers.engine import Engine, Project
from tests.tidy.compose import services

ROOT = Path(__file__).resolve().parents[2]
NATS = ("nats-1", "nats-2", "nats-3")
SERVERS = (*NATS, "object-store")
WATCHER = "exporter"
RUN = "compose"
SPEAKER = "breaker"
SECRETS = {"AWS_ACCESS_KEY_ID": "containers", "AWS_SECRET_ACCESS_KEY": "containers-secret"}
SMALL = """
[run.model]
layers = 1
width = 32
heads = 2
context = 32

[run.training]
batch_sequences = 32
checkpoint_steps = 96
evaluate_tokens = 4096
"""
TOLD_SECONDS_MAX = 90.0


class Cluster:
    """A compose cluster that runs, and its run as somebody outside the containers sees it."""

    def __init__(self, project: Project, outside: Path, nats: str) -> None:
        self.project = project
        self.outside = outside
        self._nats = nats
        self._life = os.getpid()
        self._said = 0

    def status(self) -> dict[str, Any]:
        """What `decodiloco status` says from outside; waits while it cannot say anything."""
        deadline = time.monotonic() + TOLD_SECONDS_MAX
        while True:
            done = self.typed("decodiloco.cli", "status", str(self.outside), "--json")
            if done.returncode == 0:
                told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
                return told
            assert time.monotonic() < deadline, done.stderr[-2000:]

    def verified(self) -> dict[str, Any]:
        """What `replay verify --invariants` says from outside, from the live servers."""
        done = self.typed("replay.cli", "verify", str(self.outside), "--invariants", "--json")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str, seconds: float) -> None:
        """Returns when the run's status is as asked; fails after so long with what it was."""
        deadline = time.monotonic() + seconds
        while not holds(told := self.status()):
            assert time.monotonic() < deadline, f"it did not come to that: {what}; {told}"

    def say_hardship(self, hardship: str, target: str) -> None:
        """Puts what is about to be done to a container into the run's inbox, for the tape."""
        self._said += 1
        word = HardshipInjected(
            speaker=SPEAKER,
            life=self._life,
            said=self._said,
            hardship=hardship,
            target=target,
            seed=0,
        )

        async def say(connection: Connection) -> None:
            await connection.inbox(RUN, "home").say(word)

        self._at_last(say, TOLD_SECONDS_MAX)

    def merge(self, more: int, seconds: float) -> None:
        """Waits for so many more merges on the tape. The run must not end meanwhile."""

        async def wait(connection: Connection) -> None:
            tape, seen = connection.tape(RUN), 0
            async with aclosing(tape.follow(await tape.last())) as facts:
                async for envelope in facts:
                    seen += isinstance(envelope.event, FragmentMerged)
                    assert not isinstance(envelope.event, RunClosed), f"closed {seen} merges later"
                    if seen == more:
                        return

        try:
            self._at_last(wait, seconds)
        except TimeoutError:
            raise AssertionError(f"not {more} merges more within {seconds:.0f} s") from None

    def _at_last(self, work: Callable[[Connection], Awaitable[None]], seconds: float) -> None:
        """Works over a connection of its own, again while a server has just been hurt."""

        async def again() -> None:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        connection = await connect(self._nats, SPEAKER)
                        try:
                            return await work(connection)
                        finally:
                            await connection.close()
                    except Trouble:
                        await asyncio.sleep(0.5)

        asyncio.run(again())

    def typed(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One of our commands, typed on this machine."""
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **SECRETS, "OMP_NUM_THREADS": "1"},
            check=False,
        )


def roles() -> tuple[str, ...]:
    """The services that `up` starts beside the servers."""
    return tuple(
        name
        for name, service in services().items()
        if name not in SERVERS and not service.get("profiles")
    )


@contextmanager
def running(
    engine: Engine, folder: Path, images: Mapping[str, str], steps: int
) -> Iterator[Cluster]:
    """The whole cluster, up; down again, with its volumes, and nothing of it left at the end."""
    ports = dict(zip(SERVERS, _free_ports(len(SERVERS)), strict=True))
    copy = _written(folder, images, steps, ports)
    project = Project(engine, copy, f"decodiloco-trial-{os.getpid()}")
    everybody = (*roles(), WATCHER)
    try:
        project.compose("up", "-d", "--no-build", *SERVERS)
        project.wait_until_healthy(SERVERS)
        project.compose("--profile", "watch", "up", "-d", "--no-build", *everybody, seconds=300)
        nats = ",".join(f"nats://127.0.0.1:{ports[name]}" for name in NATS)
        yield Cluster(project, copy / "outside.toml", nats)
    except BaseException:
        for service in (*SERVERS, *everybody):
            print(f"--- {service}\n{project.log(service)[-2000:]}")
        raise
    finally:
        project.compose("--profile", "watch", "down", "-v", "-t", "5", check=False)
        left = project.left()
    assert not left, f"still there after `down -v`: {left}"


def _written(folder: Path, images: Mapping[str, str], steps: int, ports: Mapping[str, int]) -> Path:
    """A copy of deploy/ with secrets, images, a shorter run, and ports open on 127.0.0.1.

    Learners come last at the processors: four of them would starve whoever looks at the run.
    Beside it `outside.toml`: the same run, as it is reached from this machine.
    """
    copy = folder / "deploy"
    shutil.copytree(ROOT / "deploy", copy)
    _write(copy / ".env", "".join(f"{name}={image}\n" for name, image in images.items()))
    _write(copy / "store.env", "".join(f"{name}={text}\n" for name, text in SECRETS.items()))
    inner = dict.fromkeys(NATS, 4222) | {"object-store": 8333}
    opened: dict[str, Any] = {
        name: {"ports": [f"127.0.0.1:{port}:{inner[name]}"]} for name, port in ports.items()
    }
    last = {role: {"cpu_shares": 64} for role in roles() if role.startswith("learner")}
    _write(copy / "compose.override.yaml", yaml.safe_dump({"services": opened | last}))
    run, here = (copy / "run.toml").read_text(encoding="utf-8").split("[here]")
    for was, becomes in (("inner_steps = 12", "inner_steps = 96"), ("= 180", f"= {steps}")):
        assert run.count(was) == 1
        run = run.replace(was, becomes)
    run += SMALL
    _write(copy / "run.toml", f"{run}\n[here]{here}")
    for name, port in ports.items():
        address = f"//{name}:{inner[name]}"
        assert address in here
        here = here.replace(address, f"//127.0.0.1:{port}")
    _write(copy / "outside.toml", f"{run}\n[here]{here}")
    return copy


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
