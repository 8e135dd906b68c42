"""The commands of deploy/compose.yaml, run without containers: the same argv, other addresses.

In place of three NATS servers and an object store stand one embedded server and a folder.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from decodiloco.config import Config, load_config
from decodiloco.local.settings import as_toml, asked_settings
from streams.nats_server import NatsServer
from tests.tidy.compose import RUN_TOML, roles
from tests.tidy.house import ROOT

START_SECONDS_MAX = 120.0
END_SECONDS_MAX = 120.0
CLUSTER = ("syncer-1", "syncer-2", "learner-a", "learner-b", "learner-c", "learner-d", "evaluator")

SMALL = {"layers": 1, "width": 32, "heads": 2, "context": 32}


def run_toml(folder: Path, nats: str) -> Path:
    """deploy/run.toml with this machine's addresses, and a model that takes no time."""
    tables = asked_settings(load_config(ROOT / "deploy" / "run.toml"))
    tables["here"] = {"nats": nats, "store": f"file://{folder / 'store'}"}
    tables["run"]["tape_replicas"] = 1
    tables["run"]["model"] = SMALL
    tables["run"]["training"] = {"batch_sequences": 2, "evaluate_tokens": 512}
    path = folder / "run.toml"
    path.write_text(as_toml(tables), encoding="utf-8")
    assert isinstance(load_config(path), Config)
    return path


def argv_of(service: str, config: Path) -> list[str]:
    """A service's argv, with our run.toml in the place of the one that compose mounts."""
    program, *arguments = roles()[service]
    script = str(Path(sys.executable).with_name(program))
    return [script, *(str(config) if word == RUN_TOML else word for word in arguments)]


async def told(service: str, config: Path, *more: str) -> tuple[int, str]:
    """Exit code and output of a service that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        *argv_of(service, config),
        *more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(END_SECONDS_MAX):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode()


@asynccontextmanager
async def cluster(config: Path) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    """All services that stay, each with a log beside the config; none outlives the test."""
    running: dict[str, asyncio.subprocess.Process] = {}
    try:
        for service in CLUSTER:
            with (config.parent / f"{service}.log").open("wb") as log:
                running[service] = await asyncio.create_subprocess_exec(
                    *argv_of(service, config), stdout=log, stderr=log
                )
        yield running
    finally:
        for process in running.values():
            if process.returncode is None:
                process.kill()
                await process.wait()


async def status(config: Path) -> dict[str, Any]:
    code, output = await told("status", config, "--json")
    assert code == 0, output
    report: dict[str, Any] = json.loads(output.splitlines()[-1])
    return report


async def steps_made(config: Path, steps: int, running: dict[str, Any]) -> None:
    """Waits until the run has made so many merges; says which service ended too early."""
    async with asyncio.timeout(START_SECONDS_MAX):
        while (await status(config))["step"] < steps:
            for service, process in running.items():
                log = (config.parent / f"{service}.log").read_text(errors="replace")
                assert process.returncode is None, f"{service} ended:\n{log[-2000:]}"
            await asyncio.sleep(0.2)


async def everybody_ends_well(config: Path, running: dict[str, Any]) -> None:
    async with asyncio.timeout(END_SECONDS_MAX):
        for service, process in running.items():
            code = await process.wait()
            log = (config.parent / f"{service}.log").read_text(errors="replace")
            assert code == 0, f"{service} ended with {code}:\n{log[-2000:]}"


@pytest.mark.long
@pytest.mark.timeout(480)
def test_the_commands_of_compose_open_train_close_and_verify_a_run(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path / "nats")
    try:
        asyncio.run(_open_train_close_verify(run_toml(tmp_path, server.url)))
    finally:
        server.stop()


async def _open_train_close_verify(config: Path) -> None:
    code, output = await told("doctor", config)
    assert code == 0, output
    code, output = await told("open", config)
    assert code == 0, output
    async with cluster(config) as running:
        await steps_made(config, 4, running)
        code, output = await told("close", config)
        assert code == 0, output
        await everybody_ends_well(config, running)
    report = await status(config)
    assert len(report["learners"]) == 4
    code, output = await told("verify", config)
    assert code == 0, output


def test_opening_a_run_that_is_open_says_so_and_harms_nothing(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path / "nats")
    try:
        asyncio.run(_open_twice(run_toml(tmp_path, server.url)))
    finally:
        server.stop()


async def _open_twice(config: Path) -> None:
    code, output = await told("open", config)
    assert code == 0, output
    code, output = await told("open", config)
    assert code == 3, output
    assert output == "decodiloco: run compose is open already; learners may join it\n"
