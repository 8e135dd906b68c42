"""How full the streams of a run are, as the server tells. Knows sizes, not facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streams.connection import Wire
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


async def sizes_of(wire: Wire, run: str, regions: Sequence[str]) -> tuple[StreamSize, ...]:
    """The tape's and each inbox's size now. Raises Declined, Silent, PermissionDenied."""
    account_max = await _account_max(wire)
    sizes = [_size(await _info(wire, tape_stream(run)), None, account_max)]
    for region in regions:
        sizes.append(_size(await _info(wire, inbox_stream(run, region)), region, account_max))
    return tuple(sizes)


async def _info(wire: Wire, stream: str) -> dict[str, Any]:
    return await wire.api(f"STREAM.INFO.{stream}")


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
