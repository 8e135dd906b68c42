"""A region's copy of the tape: a mirror stream in the JetStream domain of its leaf server.

It bears the tape's name and numbers, so that whoever reads the tape there knows of no mirror. It
is fed by a consumer that is made for it on the tape, and outlives every cut: one that the servers
make for themselves came back up to four minutes after a cut, this one in two seconds. Knows
streams and domains; not facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streams.errors import StreamUnfit
from streams.jetstream import Connection
from streams.link import STREAM_NOT_FOUND, Declined
from streams.permissions import domain_api, mirror_name, mirror_subject
from streams.subjects import tape_stream
from streams.times import STREAM_SECONDS

CONSUMER_NOT_FOUND = 10014
ORIGIN = "origin"  # in the mirror's metadata: when the tape was made that it is a copy of


@dataclass(frozen=True, slots=True)
class Mirror:
    """A region's copy: the domain that it is copied from, and how many records it is behind."""

    domain: str
    records_behind: int


async def mirror_here(connection: Connection, run: str) -> Mirror | None:
    """The mirror that the server at hand has in the tape's place; None where it has the tape."""
    info = await connection.wire.ask(f"STREAM.INFO.{tape_stream(run)}")
    source = info["config"].get("mirror")
    if not source:
        return None
    api = (source.get("external") or {}).get("api", "")
    return Mirror(api.split(".")[1] if api.count(".") == 2 else "", int(info["mirror"]["lag"]))


async def provision_mirrors(connection: Connection, run: str, regions: Sequence[str]) -> None:
    """Makes the mirror of each region that is in a domain of its own, or checks it.

    Nothing where the server is in no domain, and nothing but by the operator. A mirror of a tape
    that was lost since is made anew: it holds nothing that the tape does not. Raises StreamUnfit,
    and ServerUnreachable for a region that does not answer.
    """
    identity = connection.identity
    if identity is not None and identity.role != "operator":
        return  # nobody else may look at another region's copy
    hub = (await connection.wire.link()).client.domain
    apart = [region for region in regions if hub and region != hub]
    if not apart:
        return
    tape = await connection.wire.ask(f"STREAM.INFO.{tape_stream(run)}")
    for region in apart:
        await _ensure(connection, run, region, _settings(run, region, hub, tape["created"]))


async def _ensure(connection: Connection, run: str, region: str, wanted: dict[str, Any]) -> None:
    name, wire = wanted["name"], connection.wire
    try:
        info = await wire.ask(f"STREAM.INFO.{name}", region=region)
    except Declined as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        return await _make(connection, run, region, wanted)
    found = info["config"]
    if not found.get("mirror"):
        raise StreamUnfit(
            f"{name} in region {region} is no mirror of the tape: another run of this name was "
            "opened there; choose another run name, or delete that stream"
        )
    if (found.get("metadata") or {}).get(ORIGIN) != wanted["metadata"][ORIGIN]:
        await wire.api(f"STREAM.DELETE.{name}", seconds=STREAM_SECONDS, region=region)
        return await _make(connection, run, region, wanted)
    for field in ("mirror", "deny_delete", "deny_purge", "num_replicas"):
        if found.get(field) != wanted[field]:
            raise StreamUnfit(
                f"{name} in region {region} is not fit: {field} is {found.get(field)!r} and must "
                f"be {wanted[field]!r}; delete that stream (it is a copy), then open the run again"
            )
    return None


async def _make(connection: Connection, run: str, region: str, wanted: dict[str, Any]) -> None:
    """The consumer first, and anew: one that has given records would not give them again."""
    name, tape, wire = mirror_name(region), tape_stream(run), connection.wire
    try:
        await wire.api(f"CONSUMER.DELETE.{tape}.{name}")
    except Declined as error:
        if error.code != CONSUMER_NOT_FOUND:
            raise
    config = {
        "name": name,
        "durable_name": name,
        "deliver_subject": mirror_subject(run, region),
        "deliver_policy": "all",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": 1_000_000_000,  # the only one that servers take for this
    }
    body = {"stream_name": tape, "config": config}
    await wire.api(f"CONSUMER.CREATE.{tape}.{name}", body)
    await wire.api(f"STREAM.CREATE.{wanted['name']}", wanted, STREAM_SECONDS, region)
    await _await_first(connection, wanted["name"], region)


async def _await_first(connection: Connection, name: str, region: str) -> None:
    """Until the mirror has heard of its tape: a reader must not take it for an empty one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STREAM_SECONDS
    while True:
        info = await connection.wire.ask(f"STREAM.INFO.{name}", region=region)
        if int(info["mirror"].get("active", -1)) >= 0:
            return
        if loop.time() > deadline:
            raise StreamUnfit(
                f"{name} in region {region} hears nothing of the tape: may its server and the "
                "hub's send each other what `decodiloco keys` allows them?"
            )
        await asyncio.sleep(0.05)


def _settings(run: str, region: str, hub: str, created: str) -> dict[str, Any]:
    return {
        "name": tape_stream(run),
        "mirror": {
            "name": tape_stream(run),
            "external": {"api": domain_api(hub), "deliver": ""},
            "consumer": {
                "name": mirror_name(region),
                "deliver_subject": mirror_subject(run, region),
            },
        },
        "storage": "file",
        "num_replicas": 1,
        "deny_delete": True,
        "deny_purge": True,
        "allow_direct": False,
        "metadata": {ORIGIN: created},
    }
