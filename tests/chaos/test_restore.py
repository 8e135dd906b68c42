"""The NATS servers are lost with all they held; the run goes on from its archive in the store."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from decodiloco.archive.segments import archived, archived_to
from decodiloco.places import open_places
from decodiloco.store.open_store import open_store
from replay.place import open_tape
from streams.events import FragmentMerged, LearnerJoined, SyncerTookOver
from streams.nats_server import NatsServer
from tests.real_cluster import RealCluster, until

STEPS = 28
LEARNERS = ("a", "b")


@contextmanager
def cluster(folder: Path) -> Iterator[RealCluster]:
    with RealCluster(folder, end={"steps": STEPS}, learners_min=2) as made:
        yield made


def start_all(run: RealCluster, life: int) -> None:
    run.start("syncer", "s1", f"s1-{life}")
    for learner in LEARNERS:
        run.start("learner", learner, f"{learner}-{life}")


def start_archive(run: RealCluster) -> None:
    command = [sys.executable, "-m", "decodiloco.cli", "archive", str(run.folder)]
    with (run.folder / "archive.log").open("ab") as log:
        process = subprocess.Popen([*command, "--seconds", "0.2"], stdout=log, stderr=log)
    run.processes["archive"] = process


def archived_position(run: RealCluster) -> int:
    store = open_store(f"file://{run.folder}/store")
    return archived_to(store, run.config.run.name).position


async def merged(run: RealCluster, count: int) -> None:
    """Until so many more merges stand on the tape."""
    places = await open_places(run.config, "watcher")
    try:
        after = await places.tape.last()
        async with asyncio.timeout(90), aclosing(places.tape.follow(after)) as facts:
            async for one in facts:
                count -= isinstance(one.event, FragmentMerged)
                if count == 0:
                    return
    finally:
        await places.close()


def kill(run: RealCluster, *names: str) -> None:
    for name in names:
        if run.processes[name].poll() is None:
            run.processes[name].kill()
        run.processes[name].wait()


def lose_the_server(run: RealCluster) -> None:
    """It and all it had on its disk are gone; another starts, empty, at the same address."""
    port = int(run.server.url.rpartition(":")[2])
    run.server.kill()
    shutil.rmtree(run.folder / "nats")
    run.server = NatsServer.start(run.folder / "nats", port)


def command(run: RealCluster, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "decodiloco.cli", name, "--config", f"{run.folder}/run.toml"]
    return subprocess.run([*words, *options], capture_output=True, text=True, timeout=60)


@pytest.mark.long
def test_a_run_whose_servers_are_lost_goes_on_from_its_archive(tmp_path: Path) -> None:
    async def story() -> None:
        with cluster(tmp_path) as run:
            start_all(run, 1)
            start_archive(run)
            await merged(run, 6)
            await until(lambda: archived_position(run) > 20, "it is archived")
            kill(run, *run.processes)
            store = open_store(f"file://{tmp_path}/store")
            kept = [one.digest for one in archived(store, run.config.run.name)]
            lose_the_server(run)
            for place in (str(tmp_path), f"file://{tmp_path}/store/tiny"):
                proof = run.replay("verify", place)  # while there is only the archive
                assert proof.returncode == 0, proof.stderr

            (tmp_path / "run.tape").write_bytes(b"a recording")
            told = command(run, "restore")

            assert told.returncode == 0, told.stderr
            assert f"positions 1 to {len(kept)}," in told.stdout
            assert [one.digest for one in open_tape(f"{run.server.url}/tiny")] == kept
            assert (tmp_path / "run.before-1.tape").read_bytes() == b"a recording"
            assert run.verified()["ok"] is True
            again = command(run, "restore")
            assert again.returncode == 3 and f"has a tape of {len(kept)} facts" in again.stderr

            (tmp_path / "exported.tape").unlink()
            start_all(run, 2)
            start_archive(run)
            for learner in LEARNERS:
                assert await run.ended(f"{learner}-2", 120) == 0, run.log(f"{learner}-2")
            assert await run.ended("archive", 60) == 0
            proof = run.verified()
            assert proof["ok"] is True and proof["merges"] >= STEPS
            whole = [one.digest for one in archived(store, "tiny")]
            assert whole[: len(kept)] == kept
            assert [one.digest for one in open_tape(f"{run.server.url}/tiny")] == whole

    asyncio.run(story())


@pytest.mark.long
def test_learners_that_lived_through_the_loss_notice_it_and_nothing_is_counted_twice(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with cluster(tmp_path) as run:
            start_all(run, 1)
            start_archive(run)
            await until(lambda: archived_position(run) > 20, "it is archived")
            kill(run, "archive")
            last = archived_position(run)
            await merged(run, 4)  # more than is archived
            kill(run, "s1-1")
            lose_the_server(run)

            told = command(run, "restore")
            assert told.returncode == 0, told.stderr
            assert f"lost with the servers: every fact after position {last}." in told.stdout
            run.start("syncer", "s1", "s1-2")
            for learner in LEARNERS:
                assert await run.ended(f"{learner}-1", 60) in (1, 3), run.log(f"{learner}-1")
                said = run.log(f"{learner}-1").strip().splitlines()[-1]
                assert "restore" in said, said
                run.start("learner", learner, f"{learner}-2")
            for learner in LEARNERS:
                assert await run.ended(f"{learner}-2", 120) == 0, run.log(f"{learner}-2")

            proof = run.verified()  # fates add up, or it is not ok
            assert proof["ok"] is True and proof["merges"] >= STEPS
            tape = list(open_tape(f"{run.server.url}/tiny"))
            joins = [one for one in tape if isinstance(one.event, LearnerJoined)]
            assert len(joins) == 2 * len(LEARNERS)
            assert isinstance(tape[last].event, SyncerTookOver)

    asyncio.run(story())
