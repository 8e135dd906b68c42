"""Small words by the thousand: into an inbox that nobody reads, then onto the tape by a syncer.

So neither has to wait for the other, and each is measured by itself.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass

from decodiloco.places import Places, open_places
from streams.events import HardshipInjected
from tests.bench.load.cluster import LoadCluster
from tests.bench.load.play import cpu_seconds

SPEAKERS = 64
DRAIN_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Flooded:
    """What became of the words: said and kept a second, admitted a second, and at what cost.

    Seconds of the wall for both; those of the processor are the syncer's and the server's while
    words were admitted.
    """

    words: int
    said_seconds: float
    facts: int
    admitted_seconds: float
    syncer_seconds: float
    server_seconds: float


async def flooded(cluster: LoadCluster, words: int) -> Flooded:
    """Fills the inbox of a run that has no syncer yet, then starts one and follows the tape."""
    places = await open_places(cluster.config, "flood")
    try:
        begun = time.monotonic()
        share = words // SPEAKERS
        await asyncio.gather(*(_speak(places, f"e{at}", share) for at in range(SPEAKERS)))
        said_seconds = time.monotonic() - begun
        cluster.start_syncer()
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            return await _drained(cluster, places, share * SPEAKERS, said_seconds)
    finally:
        await places.close()


async def _speak(places: Places, speaker: str, words: int) -> None:
    for said in range(1, words + 1):
        await places.inboxes["home"].say(
            HardshipInjected(
                speaker=speaker, life=1, said=said, hardship="flood", target="inbox", seed=said
            )
        )


async def _drained(
    cluster: LoadCluster, places: Places, words: int, said_seconds: float
) -> Flooded:
    """Counts from the first fact that is heard to the last: starting up is not counted."""
    heard, first = 0, (0.0, 0.0, 0.0)
    async with aclosing(places.tape.follow(0)) as envelopes:
        async for envelope in envelopes:
            if not isinstance(envelope.event, HardshipInjected):
                continue
            heard += 1
            if heard == 1:
                first = _now(cluster)
            if heard == words:
                break
    wall, syncer, server = (b - a for a, b in zip(first, _now(cluster), strict=True))
    return Flooded(words, said_seconds, words, wall, syncer, server)


def _now(cluster: LoadCluster) -> tuple[float, float, float]:
    return time.monotonic(), cpu_seconds(cluster.syncer), cpu_seconds(cluster.nats)
