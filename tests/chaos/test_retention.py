"""A run of real processes that lets go of its old bytes while it goes on, and all that reads it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from decodiloco.close import close_run
from decodiloco.store.keys import named_by
from decodiloco.store.open_store import open_store
from decodiloco.visit import address_of
from replay.place import find_place
from replay.reach import reach_of
from replay.state import read_opening
from streams.envelope import Envelope
from streams.events import (
    EvaluationReported,
    FragmentMerged,
    HorizonRaised,
    LearnerJoined,
    RetentionAsked,
    RunOpened,
    StoreSwept,
    SyncerTookOver,
)
from streams.jetstream import connect
from tests.real_cluster import RealCluster, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

SETTINGS: dict[str, Any] = {
    "name": "swept",
    "snapshot_merges": 4,
    "retention": {"keep_merges": 12},
}


PATIENCE_SECONDS = 150.0  # the machine may be busy with other things


class Watcher:
    """What stands on the tape by now."""

    def __init__(self) -> None:
        self.records: list[Envelope] = []

    async def follow(self, cluster: RealCluster) -> None:
        connection = await connect(cluster.server.url, "watcher")
        try:
            async for envelope in connection.tape(cluster.config.run.name).follow(0):
                self.records.append(envelope)
        finally:
            await connection.close()

    def told(self, kind: type) -> list[Envelope]:
        return [each for each in self.records if isinstance(each.event, kind)]

    async def until(self, kind: type, count: int) -> None:
        there = partial(self._has, kind, count)
        await until(there, f"{count} {kind.__name__}", PATIENCE_SECONDS)

    def _has(self, kind: type, count: int) -> bool:
        return len(self.told(kind)) >= count


async def decodiloco(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "decodiloco.cli", *words]
    run = partial(subprocess.run, capture_output=True, text=True, timeout=120)
    return await asyncio.to_thread(run, command)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a closed run: swept often, joined late, led by two, asked to keep less."""
    folder = tmp_path_factory.mktemp("swept")
    with RealCluster(folder, **SETTINGS) as cluster:
        asyncio.run(_story(cluster))
        yield folder


async def _story(cluster: RealCluster) -> None:
    watcher = Watcher()
    watching = asyncio.create_task(watcher.follow(cluster))
    try:
        await _told_to_its_end(cluster, watcher)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _told_to_its_end(cluster: RealCluster, watcher: Watcher) -> None:
    folder = str(cluster.folder)
    for role, name in (("syncer", "one"), ("syncer", "two"), ("learner", "a"), ("learner", "b")):
        cluster.start(role, name)
    await watcher.until(StoreSwept, 2)
    cluster.start("learner", "c")
    cluster.start("evaluator", "evaluator")
    await watcher.until(LearnerJoined, 3)
    leader = watcher.told(SyncerTookOver)[-1].writer
    cluster.processes[leader].kill()
    await watcher.until(SyncerTookOver, 2)
    cluster.start("syncer", "three")
    asked = await decodiloco("retain", folder, "--keep-merges", "6", "--apply", "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["keep_merges_before"] == 12
    await watcher.until(StoreSwept, len(watcher.told(StoreSwept)) + 2)
    await watcher.until(EvaluationReported, 1)
    status = await decodiloco("status", folder, "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["keep_merges"] == 6
    assert json.loads(status.stdout)["horizon"] > 0
    await close_run(address_of(folder))
    for name in ("a", "b", "c", "evaluator", "three", "two" if leader == "one" else "one"):
        assert await cluster.ended(name) == 0, cluster.log(name)
    tape = str(cluster.folder / "run.tape")
    recorded = await asyncio.to_thread(cluster.replay, "record", folder, "-o", tape)
    assert recorded.returncode == 0, recorded.stderr


@pytest.fixture(scope="module")
def tape(swept: Path) -> list[Envelope]:
    return list(find_place(swept / "run.tape").envelopes())


def replay(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "replay.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_what_was_let_go_of_is_gone_and_all_else_is_there(
    swept: Path, tape: list[Envelope]
) -> None:
    reach = reach_of(tape)
    store = open_store((swept / "store").as_uri())
    opened = tape[0].event
    assert isinstance(opened, RunOpened)
    opening = read_opening(store, opened)
    gone = 0
    for each in tape:
        for key, manifest in named_by("swept", each.event, opening.fragments):
            there = store.size(key)
            assert there in (manifest.bytes, None)
            assert (there is None) <= (not reach.has(each.position)), (each.position, key)
            gone += there is None
    assert gone > 60


def test_the_store_holds_about_the_merges_that_are_kept(swept: Path, tape: list[Envelope]) -> None:
    merges = [each.event for each in tape if isinstance(each.event, FragmentMerged)]
    there = open_store((swept / "store").as_uri()).keys("swept/outer/")
    assert len(merges) > 40
    assert len(there) < len(merges) / 2


def test_a_swept_run_is_proved_above_its_horizon_and_counted_below(
    swept: Path, tape: list[Envelope]
) -> None:
    proof = replay("verify", swept / "run.tape", "--invariants", "--json")

    assert proof.returncode == 0, proof.stdout + proof.stderr
    found = json.loads(proof.stdout.splitlines()[-1])
    reach = reach_of(tape)
    above = [
        each
        for each in tape
        if isinstance(each.event, FragmentMerged) and each.position > reach.position
    ]
    assert found["horizon"] == reach.position > 0
    assert found["merges_checked"] == len(above) >= 6
    assert found["invariants"]["horizon keeps what is needed"] > 10
    assert "its bytes were let go of" in proof.stdout


def test_states_are_told_everywhere_and_models_down_to_the_horizon(
    swept: Path, tape: list[Envelope], tmp_path: Path
) -> None:
    at, model = reach_of(tape).position, tmp_path / "model.safetensors"
    assert replay("state", swept, "--at", at, "-o", model).returncode == 0
    assert replay("state", swept, "--at", at - 1).returncode == 0

    beyond = replay("state", swept, "--at", at // 2, "-o", model)

    assert beyond.returncode == 3
    assert f"beyond the horizon: bytes up to position {at} were let go of" in beyond.stderr
    assert f"Ask for position {at} or later" in beyond.stderr
    assert beyond.stderr.count("\n") == 1


def test_a_swept_tape_is_shown_and_compared_with_a_copy(swept: Path, tmp_path: Path) -> None:
    shown = replay("show", swept)
    assert shown.returncode == 0
    for words in ("horizon raised to position", "swept below position", "asked to keep at least 6"):
        assert words in shown.stdout
    copy = Path(shutil.copytree(swept / "store", tmp_path / "store")).as_uri()
    tape = swept / "run.tape"
    same = replay("diff", tape, tape, "--bytes", "--store-b", copy)
    assert same.returncode == 0, same.stdout
    assert "bytes beyond a horizon are not compared" in same.stderr


def test_a_part_of_the_learners_cannot_be_trained_again_beyond_the_horizon(swept: Path) -> None:
    done = replay("retrain", swept / "run.tape", "--learner", "a", "--until", 60)
    assert (done.returncode, "beyond the horizon" in done.stderr) == (3, True), done.stderr


def test_all_learners_are_trained_again_from_the_opening_all_the_same(swept: Path) -> None:
    done = replay("retrain", swept / "run.tape", "--until", 120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PROVED" in done.stdout


def test_a_closed_run_keeps_what_it_has(swept: Path) -> None:
    dry = asyncio.run(decodiloco("retain", str(swept), "--keep-merges", "2"))
    assert dry.returncode == 0 and "nothing was asked" in dry.stdout
    assert "blobs would go" in dry.stdout
    asked = asyncio.run(decodiloco("retain", str(swept), "--keep-merges", "2", "--apply"))
    assert (asked.returncode, "keeps what it has" in asked.stderr) == (2, True)


def test_horizons_rise_one_after_the_other(tape: list[Envelope]) -> None:
    facts = [each for each in tape if isinstance(each.event, HorizonRaised | StoreSwept)]
    kinds = [each.event.kind for each in facts]
    assert kinds[:4] == ["horizon_raised", "store_swept"] * 2
    raised = [each.event.position for each in facts if isinstance(each.event, HorizonRaised)]
    assert raised == sorted(set(raised)) and len(raised) >= 4
    assert sum(isinstance(each.event, RetentionAsked) for each in tape) == 1
