"""What one syncer carries: words admitted a second, learners at an offer a second, memory.

A real nats-server, a real syncer and, in a third process, learners of the production machine with
small tensors (`tests.bench.load`). Who shares the machine with others measures their share by the
wall; so what a fact costs is told in seconds of the syncer's own processor time as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.bench.figures import Figure, at_least, at_most
from tests.bench.load.cluster import LoadCluster
from tests.bench.load.flood import flooded
from tests.bench.load.play import Played, Tally

GOAL = 256
SIZES = (16, 64, GOAL, 512, 768, 1024)  # as many as a run may have
STEP_SECONDS = 1.0
WARM_SECONDS, SECONDS, SECONDS_QUICK = 2.0, 7.0, 3.0
WORDS, WORDS_QUICK = 3200, 1280
FAST_STEP_SECONDS = 0.02  # fifty offers a second of each learner, if the machine gives them
GROWTH_SECONDS = 30.0
HOUR_LEARNERS = 8
HOUR_OFFERS = HOUR_LEARNERS * 3600


def figures(quick: bool) -> Iterator[Figure]:
    """Learners of several numbers, words by the thousand, and the memory of both sides."""
    sizes, seconds = ((SIZES[0],), SECONDS_QUICK) if quick else (SIZES, SECONDS)
    with LoadCluster(STEP_SECONDS) as cluster:
        cluster.start_syncer()
        for learners in sizes:
            yield from _load(cluster, learners, seconds)
    yield from _flood(WORDS_QUICK if quick else WORDS, is_synced=True)
    if not quick:
        yield from _flood(WORDS, is_synced=False)
        yield from growth(GROWTH_SECONDS)


def growth(seconds: float) -> Iterator[Figure]:
    """Memory of a syncer and of a real learner over traffic as fast as it goes."""
    alone = LoadCluster(FAST_STEP_SECONDS, is_on_disk=False)
    with alone as cluster, ThreadPoolExecutor() as pool:
        cluster.start_syncer()
        times = FAST_STEP_SECONDS, WARM_SECONDS, seconds
        processes = cluster.syncer.pid, cluster.nats.pid
        learning = pool.submit(cluster.told_by, "learner", cluster.path, "real", *times)
        played = _played(
            cluster.told_by("play", cluster.path, HOUR_LEARNERS - 1, *times, *processes)
        )
        learner = learning.result()
    offers, share = played.tally.offers, played.tally.offers / HOUR_OFFERS
    traffic = f"{offers:,} offers, {share:.0%} of an hour of {HOUR_LEARNERS} learners"
    yield _grown("syncer", played.syncer_bytes, f"{traffic}; {played.tally.merges:,} merges")
    more = f"{learner['steps']:,} steps, {learner['merges']:,} merges"
    yield _grown("learner", learner["sizes"], more)


def _grown(name: str, sizes: Sequence[int], more: str) -> Figure:
    told = ", ".join(f"{size / 1e6:.0f}" for size in sizes)
    return Figure(
        f"load: {name}'s memory at the end over a quarter's",
        sizes[-1] / sizes[0],
        "x",
        at_most(1.05),
        f"{told} MB at each quarter; {more}",
    )


def _load(cluster: LoadCluster, learners: int, seconds: float) -> Iterator[Figure]:
    told = cluster.told_by(
        "play", cluster.path, learners, STEP_SECONDS, WARM_SECONDS, seconds,
        cluster.syncer.pid, cluster.nats.pid,
    )  # fmt: skip
    played = _played(told)
    tally, name = played.tally, f"load: {learners} learners at an offer a second"
    contributions = tally.contributions / max(1, tally.merges)
    median, worst = played.wait_seconds
    wanted = learners / STEP_SECONDS
    yield Figure(
        f"{name}: admitted",
        tally.offers / tally.wall_seconds,
        "offers/s",
        at_least(0.95 * wanted) if learners == GOAL else None,
        f"{median * 1e3:.0f} ms from word to fact, 1 % over {worst * 1e3:.0f}; {played.lag} on "
        f"their way at the end; {tally.merges} merges of {contributions:.0f}; "
        f"{tally.refused} refused; cores: {_cores(tally)}",
    )
    yield Figure(
        f"{name}: what a core carries",
        tally.offers / tally.syncer_seconds,
        "learners",
        at_least(GOAL) if learners == GOAL else None,
        f"{1e3 * tally.syncer_seconds / tally.offers:.2f} ms of the syncer an offer, all that it "
        f"does counted; {1e3 * tally.server_seconds / tally.offers:.2f} of the server",
    )


def _cores(tally: Tally) -> str:
    """How much of a core each of the three had."""
    used = {
        "syncer": tally.syncer_seconds,
        "server": tally.server_seconds,
        "learners": tally.player_seconds,
    }
    return ", ".join(f"{who} {spent / tally.wall_seconds:.2f}" for who, spent in used.items())


def _played(told: dict[str, Any]) -> Played:
    return Played(**{**told, "tally": Tally(**told["tally"])})


def _flood(words: int, is_synced: bool) -> Iterator[Figure]:
    with LoadCluster(STEP_SECONDS, is_synced) as cluster:
        told = asyncio.run(flooded(cluster, words))
    name = f"load: {'synced to disk' if is_synced else 'not synced'}"
    yield Figure(f"{name}: words into an inbox", words / told.said_seconds, "words/s")
    yield Figure(
        f"{name}: facts from inbox to tape",
        told.facts / told.admitted_seconds,
        "facts/s",
        detail=f"{told.facts / told.syncer_seconds:,.0f} in a second of the syncer's processor; "
        f"{1e3 * told.server_seconds / told.facts:.2f} ms of the server a fact",
    )
