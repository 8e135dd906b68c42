"""A user's own model in a plain loop of its own, against a real server and a real syncer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from streams.errors import StreamMissing
from streams.jetstream import connect
from streams.nats_server import NatsServer

ROOT = Path(__file__).parents[2]
RUN = """
[run]
name = "own"
fragments = 2
inner_steps = 4
[run.end]
steps = 12
[run.window]
step_seconds = 0.05
upload_seconds = 0.05
[here]
nats = "{nats}"
store = "file://{store}"
"""


async def until_open(url: str) -> None:
    """Returns when the run's first fact stands on its tape."""
    connection = await connect(url, "test")
    tape = connection.tape("own")
    try:
        async with asyncio.timeout(60):
            while True:
                with suppress(StreamMissing):
                    if await tape.last():
                        return
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


@pytest.mark.timeout(120)
def test_the_example_opens_and_trains_a_model_of_its_own_with_two_learners(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path / "nats")
    config = tmp_path / "run.toml"
    config.write_text(RUN.format(nats=server.url, store=tmp_path / "store"))
    example = [sys.executable, str(ROOT / "examples" / "plain_loop.py"), str(config)]
    syncer = [sys.executable, "-m", "decodiloco.cli", "syncer", "--config", str(config)]
    processes: list[subprocess.Popen[str]] = []

    def started(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        processes.append(process)
        return process

    try:
        first = started(*example, "a")
        second = started(*example, "b")
        asyncio.run(until_open(server.url))
        leader = started(*syncer, "--id", "s")
        told = [process.communicate(timeout=100)[0] for process in (first, second)]
        assert [process.returncode for process in (first, second)] == [0, 0], told
        assert all("finished: loss" in text for text in told), told
        assert leader.wait(timeout=30) == 0, leader.communicate()[0]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        server.stop()
