"""Writes the golden tapes: `python -m tests.golden.make_tapes` (`live` or `world` for one of them).

`live` is a run of real processes on a real nats-server with a model of 3,000 parameters: a
learner is killed and comes back, and the leading syncer is killed and succeeded. `world` is one
simulated run under many hardships. For each there is a tape, its blobs in an archive, and in
`tapes.json` what they must come to. Make them anew only when a new version of the rules or of
the formats says so: that old records still replay is what they are kept for.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from decodiloco.close import close_run
from decodiloco.visit import address_of
from replay.place import Place, find_place
from replay.progress import silently
from replay.state import state_at
from replay.verify import verify_place
from replay.world.campaign import keep, play
from streams.envelope import Envelope
from streams.events import FragmentMerged, LearnerJoined, SyncerTookOver
from tests.real_cluster import RealCluster, until

FOLDER = Path(__file__).with_name("tapes")
NUMBERS = FOLDER / "tapes.json"
LIVE, WORLD = "live", "world"
TEXT = "text.txt"  # what the live run trains on; kept with its blobs, for `retrain --data`
SEED, MERGES = 57, 20
WORDS = ("a", "learner", "offers", "its", "delta", "and", "the", "syncer", "merges", "what", "came")
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def make_live(folder: Path) -> None:
    """A real run in `folder`: its tape and its store are what it leaves behind."""
    random = Random(0)
    text = " ".join(random.choice(WORDS) for _ in range(8000))
    (folder / TEXT).write_text(text, encoding="utf-8")
    settings = {
        "name": "golden",
        "fragments": 3,
        "inner_steps": 600,
        "learners_min": 2,
        "model": {"layers": 1, "width": 8, "heads": 2, "context": 16},
        "training": {
            "data": str(folder / TEXT),
            "batch_sequences": 2,
            "checkpoint_steps": 1500,
        },
    }
    with RealCluster(folder, **settings) as cluster:
        asyncio.run(_story(cluster))


async def _story(cluster: RealCluster) -> None:
    for syncer in ("one", "two"):
        cluster.start("syncer", syncer)
    for learner in ("a", "b"):
        cluster.start("learner", learner)
    await _until_told(cluster, FragmentMerged, 3)
    cluster.processes["a"].send_signal(signal.SIGKILL)
    cluster.start("learner", "a", "a-again")
    await _until_told(cluster, LearnerJoined, 3)
    await _until_merges_more(cluster, 2)
    leader = _told(cluster, SyncerTookOver)[-1].writer
    cluster.processes[leader].send_signal(signal.SIGKILL)
    await _until_told(cluster, SyncerTookOver, 2)
    await _until_merges_more(cluster, 2)
    print(await close_run(address_of(str(cluster.folder / "run.toml"), None)))
    for process in ("a-again", "b", "one" if leader == "two" else "two"):
        code = await cluster.ended(process)
        assert code == 0, cluster.log(process)
    done = await asyncio.to_thread(
        cluster.replay, "record", str(cluster.folder), "-o", str(cluster.folder / "run.tape")
    )
    assert done.returncode == 0, done.stderr


def make_world(folder: Path) -> None:
    """One simulated run under many hardships."""
    world = play(SEED, merges=MERGES)
    told = world.play()
    assert told.broken is None, told.broken
    keep(world, folder)


def keep_golden(name: str, folder: Path) -> None:
    """Puts a run's tape and blobs among the golden ones, and says what they come to.

    Only a run that is proved is kept: of a world whose store lost a blob, that is another seed.
    """
    proof = verify_place(find_place(folder / "run.tape"), 1, silently)
    assert proof.ok, f"{name}: {proof.first_difference}"
    FOLDER.mkdir(exist_ok=True)
    shutil.copy(folder / "run.tape", FOLDER / f"{name}.tape")
    with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (*sorted((folder / "store").rglob("*")), folder / TEXT):
            if path.is_file():
                told = zipfile.ZipInfo(str(path.relative_to(folder)), ZIP_TIME)
                archive.writestr(told, path.read_bytes(), zipfile.ZIP_DEFLATED)
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    numbers[name] = numbers_of(find_place(folder / "run.tape"))
    NUMBERS.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def numbers_of(place: Place) -> dict[str, Any]:
    """What a tape comes to: its length, its last digest, and states along it."""
    records = list(place.envelopes())
    last = len(records)
    positions = sorted({*range(1, last, max(1, last // 8)), last})
    merges = sum(isinstance(each.event, FragmentMerged) for each in records)
    states = {}
    for position in positions:
        state = state_at(str(place.path), position)
        states[str(position)] = state.digest
        state.close()
    closed = state_at(str(place.path))
    model = closed.model_digest()
    closed.close()
    return {
        "facts": last,
        "merges": merges,
        "last_digest": records[-1].digest.hex(),
        "model_digest": model,
        "states": states,
    }


def _told(cluster: RealCluster, kind: type) -> list[Envelope]:
    place = Place(cluster.config.run.name, url=cluster.server.url)
    return [each for each in place.envelopes() if isinstance(each.event, kind)]


async def _until_told(cluster: RealCluster, kind: type, count: int) -> None:
    await until(lambda: len(_told(cluster, kind)) >= count, f"{count} {kind.__name__}")


async def _until_merges_more(cluster: RealCluster, more: int) -> None:
    await _until_told(cluster, FragmentMerged, len(_told(cluster, FragmentMerged)) + more)


MAKERS: dict[str, Callable[[Path], None]] = {LIVE: make_live, WORLD: make_world}


def main(names: Sequence[str]) -> None:
    """Makes the tapes that are named, or all."""
    for name in names or MAKERS:
        folder = Path(tempfile.mkdtemp(prefix="golden-"))
        try:
            MAKERS[name](folder)
            keep_golden(name, folder)
        finally:
            shutil.rmtree(folder)
        sizes = [(FOLDER / f"{name}.{ending}").stat().st_size for ending in ("tape", "zip")]
        print(f"{name}: tape {sizes[0]} bytes, blobs {sizes[1]} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
