"""How full the streams of a run are, as the server tells. Knows sizes, not facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streams.connection import Wire
from streams.errors import ServerUnreachable, Trouble
from streams.link import Declined
from streams.subjects import inbox_stream, tape_stream


@dataclass(frozen=True, slots=True)
class StreamSize:
    """One stream. `region`: that of an inbox, None for the tape.

    `bytes_max`: what the stream, else its account, may hold; None where neither has a limit.
    """

    name: str
    region: str | None
    messages: int
    bytes: int
    last_sequence: int
    bytes_max: int | None
    replicas_behind: int


async def sizes_of(
    wire: Wire, run: str, regions: Sequence[str], untold: Callable[[str, Trouble], None]
) -> tuple[StreamSize, ...]:
    """The tape's and each inbox's size now, but of those that cannot be told.

    An inbox is on one server: while that is away, nobody tells its size, and the tape's counts all
    the more. `untold` hears which stream that is, and why. Raises ServerUnreachable where no server
    answers at all, and PermissionDenied.
    """
    account_max = await _account_max(wire)

    async def asked(stream: str, region: str | None) -> StreamSize | None:
        try:
            info = await wire.api(f"STREAM.INFO.{stream}", region=region or "")
            return _size(info, region, account_max)
        except (Declined, ServerUnreachable) as error:
            untold(stream, error)
            return None

    told = await asyncio.gather(
        asked(tape_stream(run), None),
        *(asked(inbox_stream(run, region), region) for region in regions),
    )
    return tuple(one for one in told if one is not None)


async def _account_max(wire: Wire) -> int | None:
    limits = (await wire.api("INFO")).get("limits") or {}
    most = int(limits.get("max_storage", -1))
    return most if most > 0 else None


def _size(info: dict[str, Any], region: str | None, account_max: int | None) -> StreamSize:
    state, config = info["state"], info["config"]
    most = int(config.get("max_bytes", -1))
    replicas = (info.get("cluster") or {}).get("replicas") or []
    return StreamSize(
        name=config["name"],
        region=region,
        messages=int(state["messages"]),
        bytes=int(state["bytes"]),
        last_sequence=int(state["last_seq"]),
        bytes_max=most if most > 0 else account_max,
        replicas_behind=sum(
            1 for one in replicas if one.get("offline") or not one.get("current", False)
        ),
    )
