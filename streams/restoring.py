"""A lost tape's stream made again: marked from its making until its last record is back.

While the mark is there nobody takes the part for the whole: whoever means to write or to join
asks for the end of the tape first, and is told. Knows streams; what is put back comes from above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.errors import StreamExists
from streams.jetstream import Connection
from streams.jetstream_tape import RESTORING
from streams.link import STREAM_NOT_FOUND, Declined
from streams.provision import create_stream, provision, provision_inboxes, tape_settings
from streams.subjects import tape_stream
from streams.times import STREAM_SECONDS


async def begin(connection: Connection, run: str, replicas: int) -> int:
    """Makes the tape's stream, marked; how many records it holds already.

    None, but for what a restore that was stopped has put back. Raises StreamExists for a tape
    that holds a fact and no mark: it is not lost, and is left as it is.
    """
    settings = _marked(run, replicas)
    name = tape_stream(run)
    try:
        info = await connection.wire.ask(f"STREAM.INFO.{name}")
    except Declined as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        info = await create_stream(connection, settings)
    if not _is_marked(info):
        last = int(info["state"]["last_seq"])
        if last:
            raise StreamExists(
                f"run {run} has a tape of {last} facts at {connection.address}: nothing is "
                "restored over it. If they are not worth keeping, stop the run's processes, "
                f"delete the stream {name} there, and restore again"
            )
        info = await connection.wire.api(f"STREAM.UPDATE.{name}", settings, STREAM_SECONDS)
    return int(info["state"]["last_seq"])


async def end(connection: Connection, run: str, regions: Sequence[str], replicas: int) -> None:
    """Makes the inboxes, or leaves them, and takes the mark away: the run may go on."""
    await provision_inboxes(connection, run, regions)
    settings = tape_settings(run, replicas)
    await connection.wire.api(f"STREAM.UPDATE.{settings['name']}", settings, STREAM_SECONDS)
    await provision(connection, run, regions, replicas)  # checks every setting


def _marked(run: str, replicas: int) -> dict[str, Any]:
    settings = tape_settings(run, replicas)
    return {**settings, "metadata": {**settings["metadata"], RESTORING: "1"}}


def _is_marked(info: dict[str, Any]) -> bool:
    return RESTORING in (info["config"].get("metadata") or {})
