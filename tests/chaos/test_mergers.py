"""Real mergers beside a real syncer: they merge, one is killed -9, and the run is proved."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from decodiloco.places import open_places
from tests.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(280)

STEPS = 20


async def merges_of(cluster: RealCluster, merger: str, merges: int) -> None:
    """Waits until this merger says that it has done so many merges."""
    places = await open_places(cluster.config, "watcher")
    try:
        async with asyncio.timeout(120), aclosing(places.pulse.listen()) as beats:
            async for beat in beats:
                is_it = (beat.role, beat.speaker) == ("merger", merger)
                if is_it and beat.count("merges") >= merges:
                    return
    finally:
        await places.close()


def test_mergers_merge_and_one_that_is_killed_is_not_missed(tmp_path: Path) -> None:
    async def story(cluster: RealCluster) -> None:
        for name in ("m1", "m2"):
            cluster.start("merger", name)
            await merges_of(cluster, name, 0)
        cluster.start("syncer", "syncer")
        for name in ("a", "b"):
            cluster.start("learner", name)
        await merges_of(cluster, "m1", 3)
        await merges_of(cluster, "m2", 1)
        assert "merging here" not in cluster.log("syncer")
        cluster.processes["m1"].kill()
        for name in ("a", "b", "syncer", "m2"):
            assert await cluster.ended(name) == 0, cluster.log(name)

    with RealCluster(tmp_path, end={"steps": STEPS}) as cluster:
        asyncio.run(story(cluster))
        proof = cluster.verified()
    assert proof["ok"] and proof["merges"] == proof["merges_checked"] >= STEPS
