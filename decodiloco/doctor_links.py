"""The links between a hub and its regions, as `doctor` measures them from where it runs.

Round trips of requests to the JetStream of other domains. Knows nothing of the store.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from streams.jetstream import Connection
from streams.mirror import Mirror, mirror_here
from streams.subjects import inbox_stream

ROUNDS = 5


async def mirror_told(connection: Connection, run: str) -> tuple[Mirror | None, str]:
    """The copy of the tape that this server has in its place, if so, and what to say of it."""
    mirror = await mirror_here(connection, run)
    if mirror is None:
        return None, ""
    return mirror, (
        f"; it is a copy of the tape of {mirror.domain or 'another server'}, "
        f"{mirror.records_behind} records behind"
    )


async def round_trips(
    connection: Connection, run: str, regions: Sequence[str], mirror: Mirror | None
) -> dict[str, float]:
    """Median seconds of a request to each region that is elsewhere; from a region, to the hub.

    Empty where the server is in no domain, and for who may not ask: a learner, an evaluator, a
    viewer and a merger. Raises ServerUnreachable for a region that does not answer.
    """
    identity = connection.identity
    here = (await connection.wire.link()).client.domain
    if not here or (identity is not None and (identity.outside or identity.role == "merger")):
        return {}
    others = [mirror.domain] if mirror else [region for region in regions if region != here]
    trips = {}
    for region in others:
        is_syncer = identity is not None and identity.role == "syncer"
        call = f"STREAM.INFO.{inbox_stream(run, region)}" if is_syncer else "INFO"
        seconds = []
        for _ in range(ROUNDS):
            began_seconds = time.monotonic()
            await connection.wire.api(call, region=region)
            seconds.append(time.monotonic() - began_seconds)
        trips[region] = statistics.median(seconds)
    return trips
