"""Learners that come and go, as real processes: what they are worth, and how they leave."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from decodiloco.config import Config, load_config
from decodiloco.local.settings import as_toml
from decodiloco.places import open_places
from streams.events import LearnerJoined, LearnerLeft
from tests.chaos.scavenging.__main__ import WITHIN
from tests.chaos.scavenging.trial import Asked, Scavenged, scavenge
from tests.real_cluster import tiny, until

LIMIT_SECONDS = 240.0
NOTICE_SECONDS = 30.0
TRIAL = Asked(base=2, budget_seconds=400.0, nights=2, pace_seconds=1.0)
STEPPING_MIN = 0.97  # less: the machine was too busy to measure anything

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_twice_the_learners_for_half_of_the_work_take_three_quarters_of_the_time(
    tmp_path: Path,
) -> None:
    async def told() -> tuple[Scavenged, Scavenged]:
        alone = scavenge(tmp_path / "alone", TRIAL, 0)
        return await asyncio.gather(alone, scavenge(tmp_path / "more", TRIAL, 2, proved=True))

    alone, more = asyncio.run(told())

    assert min(alone.stepping_share, more.stepping_share) > STEPPING_MIN
    assert more.ideal == 0.75
    assert more.seconds / alone.seconds == pytest.approx(0.75, rel=WITHIN)
    assert 2 <= more.preempted <= len(more.left_seconds)
    assert max(more.left_seconds) < NOTICE_SECONDS


def test_a_cluster_lets_learners_come_and_go_by_a_trace(tmp_path: Path) -> None:
    folder, trace = tmp_path / "run", tmp_path / "trace.csv"
    run = {**tiny(), "end": {"steps": 1_000_000}}
    here = {"nats": "nats://127.0.0.1:0", "store": f"file://{folder}/store"}
    (tmp_path / "run.toml").write_text(as_toml({"run": run, "here": here}), encoding="utf-8")
    trace.write_text("seconds,learners\n0,1\n30,0\n33,1\n", encoding="utf-8")
    command = (sys.executable, "-m", "decodiloco.cli")
    words = ("--config", str(tmp_path / "run.toml"), "--learners", "1", "--syncers", "1")
    cluster = subprocess.Popen(
        [*command, "up", *words, "--spot", str(trace), "--dir", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told = asyncio.run(life_of("spot-1", folder))
        closed = subprocess.run([*command, "close", str(folder)], capture_output=True, text=True)
        said, _ = cluster.communicate(timeout=LIMIT_SECONDS)
    finally:
        cluster.terminate()
        cluster.wait(LIMIT_SECONDS)

    assert told == ["joins", "leaves (preempted)", "joins"]
    assert closed.returncode == 0, closed.stderr
    assert cluster.returncode == 0, said


async def life_of(learner: str, folder: Path) -> list[str]:
    """What the tape tells of a learner, up to its second join."""
    await until(lambda: address_in(folder) is not None, "the run is there", LIMIT_SECONDS)
    config = address_in(folder)
    assert config is not None
    await until(lambda: (folder / "logs" / "syncer-1.log").exists(), "it is open", LIMIT_SECONDS)
    places = await open_places(config, "watcher")
    told: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_SECONDS), aclosing(places.tape.follow(0)) as facts:
            async for fact in facts:
                match fact.event:
                    case LearnerJoined(learner=name) if name == learner:
                        told.append("joins")
                    case LearnerLeft(learner=name, reason=reason) if name == learner:
                        told.append(f"leaves ({reason})")
                if told.count("joins") == 2:
                    break
    finally:
        await places.close()
    return told


def address_in(folder: Path) -> Config | None:
    """The run folder's config, once it names a server that is there."""
    path = folder / "run.toml"
    config = load_config(path) if path.exists() else None
    return config if config and not config.here.nats.endswith(":0") else None
