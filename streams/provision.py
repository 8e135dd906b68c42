"""The streams of a run: made, or checked to be what facts need. Knows settings, not facts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from streams.codec import ENVELOPE_BYTES_MAX, EVENT_BYTES_MAX, SCHEMA
from streams.envelope import genesis
from streams.errors import AskedWrongly, ServerUnreachable, StreamUnfit
from streams.jetstream import Connection
from streams.jetstream_inbox import life_of
from streams.jetstream_tape import RESTORING
from streams.link import STREAM_NOT_FOUND, Declined, Nobody, Silent
from streams.mirror import provision_mirrors
from streams.permissions import Identity, readers_of
from streams.reader import WAITING_MAX
from streams.subjects import checked, inbox_stream, tape_stream
from streams.times import (
    ELECTION_SECONDS,
    INBOX_SECONDS_MAX,
    INBOX_TWIN_SECONDS,
    PEERS_SECONDS,
    STREAM_AGAIN_SECONDS,
    STREAM_SECONDS,
    TAPE_TWIN_SECONDS,
)

HEADER_BYTES_MAX = 1024  # NATS counts headers as part of a message
NAME_IN_USE = 10058
SUBJECTS_OVERLAP = 10065
TOO_FEW_SERVERS = (10074, 10005)  # a server by itself; a cluster with too few peers

_TAPE_PREFIX = "TAPE_"


async def provision(
    connection: Connection, run: str, regions: Sequence[str], replicas: int = 1
) -> None:
    """Makes the tape and the inboxes of a run, or checks those that are there.

    May be called again at any time, and by several at once. Raises StreamUnfit, naming the
    stream, the setting and what it must be.
    """
    if not regions:
        raise AskedWrongly(f"run {run}: name at least one region")
    await _ensure(connection, tape_settings(run, replicas))
    await provision_inboxes(connection, run, regions)
    await provision_mirrors(connection, run, regions)


async def provision_inboxes(connection: Connection, run: str, regions: Sequence[str]) -> None:
    """Makes the inboxes of a run, or checks those that are there; each made one has a new life."""
    for region in regions:
        await _ensure(connection, inbox_settings(run, region), region)


async def provision_readers(connection: Connection, identity: Identity) -> None:
    """Makes the consumers by which a learner reads its part of the tape, or leaves them be.

    On the tape, or on its mirror in the learner's region.
    """
    stream = tape_stream(identity.run)
    for reader in readers_of(identity):
        config = {
            "name": reader.name,
            "durable_name": reader.name,
            "ack_policy": "none",
            "deliver_policy": "all",  # it may be set back to any position
            "replay_policy": "instant",
            "filter_subjects": list(reader.filters),
            "max_waiting": WAITING_MAX,
        }
        body = {"stream_name": stream, "config": config}
        call = f"CONSUMER.CREATE.{stream}.{reader.name}"
        await connection.wire.api(call, body, region=identity.regions[0])


async def runs(connection: Connection) -> list[str]:
    """The names of the runs that have a tape on this server, sorted."""
    names: list[str] = []
    while True:
        answer = await connection.wire.api(
            "STREAM.NAMES", {"subject": "tape.>", "offset": len(names)}
        )
        page = answer.get("streams") or []
        names.extend(page)
        if not page or len(names) >= int(answer["total"]):
            break
    return sorted(
        name.removeprefix(_TAPE_PREFIX) for name in names if name.startswith(_TAPE_PREFIX)
    )


def tape_settings(run: str, replicas: int = 1) -> dict[str, Any]:
    """What a tape's stream must be: nothing in it is ever lost, altered or taken away."""
    return {
        **_settings(tape_stream(run), f"tape.{checked(run, 'run')}.>"),
        "num_replicas": replicas,
        "max_msg_size": ENVELOPE_BYTES_MAX + HEADER_BYTES_MAX,
        "max_age": 0,
        "duplicate_window": TAPE_TWIN_SECONDS.nanoseconds,
        "allow_atomic": True,
        "metadata": {"schema": str(SCHEMA), "genesis": genesis(run).hex()},
    }


def inbox_settings(run: str, region: str) -> dict[str, Any]:
    """What an inbox's stream must be. One replica, for learners write to it.

    A header that a stranger may set stops a replicated stream of nats-server 2.14 to 2.15.1.
    """
    subject = f"in.{checked(run, 'run')}.{checked(region, 'region')}.*.*"
    return {
        **_settings(inbox_stream(run, region), subject),
        "num_replicas": 1,
        "max_msg_size": EVENT_BYTES_MAX + HEADER_BYTES_MAX,
        "max_age": INBOX_SECONDS_MAX.nanoseconds,
        "duplicate_window": INBOX_TWIN_SECONDS.nanoseconds,
        "allow_atomic": False,
        "metadata": {"schema": str(SCHEMA)},
    }


def _settings(name: str, subject: str) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [subject],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_consumers": -1,
        "compression": "none",
        "deny_delete": True,
        "deny_purge": True,
        "allow_rollup_hdrs": False,
        "allow_direct": True,
        "allow_msg_ttl": False,
        "allow_msg_counter": False,
        "allow_msg_schedules": False,
        "no_ack": False,
        "sealed": False,
    }


async def _ensure(connection: Connection, wanted: dict[str, Any], region: str = "") -> None:
    name = wanted["name"]
    is_inbox = wanted["max_age"] > 0
    try:
        info = await _info(connection, name, region)
    except Declined as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        metadata = dict(wanted["metadata"])
        if is_inbox:
            metadata["life"] = secrets.token_hex(8)
        info = await create_stream(connection, {**wanted, "metadata": metadata}, region)
    _check(info["config"], wanted)
    if is_inbox:
        life_of(info)


async def _info(connection: Connection, name: str, region: str) -> dict[str, Any]:
    """What the server says of a stream; a cluster that has just started may have no leader yet."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ELECTION_SECONDS
    while True:
        try:
            return await connection.wire.ask(f"STREAM.INFO.{name}", region=region)
        except Nobody:
            raise
        except Silent as error:
            if loop.time() > deadline:
                raise ServerUnreachable(
                    f"{error}; most of the servers of {connection.address} must run, reach each "
                    "other and have chosen who leads them"
                ) from None
        await asyncio.sleep(0.1)


async def create_stream(
    connection: Connection, settings: dict[str, Any], region: str = ""
) -> dict[str, Any]:
    """Makes a stream; what the server says of it, or of one of that name which is there already.

    A cluster that has just started may not know all its servers yet: it is given some time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PEERS_SECONDS
    while True:
        try:
            return await _create_now(connection, settings, region)
        except Declined as error:
            if error.code not in TOO_FEW_SERVERS:
                raise
            if "offline" not in error.description or loop.time() > deadline:
                raise StreamUnfit(
                    f"{settings['name']} wants {settings['num_replicas']} replicas, and "
                    f"{connection.address} has too few servers ({error.description}); set "
                    "run.tape_replicas to 1, or give it the addresses of a cluster that is whole"
                ) from None
        await asyncio.sleep(0.1)


async def _create_now(
    connection: Connection, settings: dict[str, Any], region: str
) -> dict[str, Any]:
    name = settings["name"]
    try:
        link = await connection.wire.link()
        call = f"STREAM.CREATE.{name}"  # again it is the same stream, and a lost answer is told
        return await link.api(call, settings, STREAM_SECONDS, STREAM_AGAIN_SECONDS, region)
    except Declined as error:
        if error.code == NAME_IN_USE:  # another was quicker
            return await connection.wire.api(f"STREAM.INFO.{name}", region=region)
        if error.code == SUBJECTS_OVERLAP:
            raise StreamUnfit(
                f"{name} cannot be made: another stream already takes {settings['subjects'][0]}; "
                "choose another run name, or remove that stream"
            ) from None
        raise


def _check(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Compares every setting that matters; one left out by the server is off or zero."""
    name = wanted["name"]
    for field, value in wanted.items():
        if field == "metadata":
            continue
        there = found.get(field, type(value)())
        if there != value:
            raise StreamUnfit(_unfit(name, field, there, value))
    metadata = found.get("metadata") or {}
    if metadata.get(RESTORING) and RESTORING not in wanted["metadata"]:
        raise StreamUnfit(f"stream {name} is being restored: end `decodiloco restore` first")
    for field, value in wanted["metadata"].items():
        if metadata.get(field) != value:
            raise StreamUnfit(_unfit(name, f"metadata.{field}", metadata.get(field), value))
    for field in ("mirror", "sources", "republish", "subject_transform", "template_owner"):
        if found.get(field):
            raise StreamUnfit(_unfit(name, field, found[field], "unset"))


def _unfit(name: str, field: str, there: object, wanted: object) -> str:
    return (
        f"stream {name} is not fit for facts: {field} is {there!r} and must be {wanted!r}; "
        "use another run name, or have the stream's operator change it"
    )
