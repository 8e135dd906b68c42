"""Where a run is kept, opened from a config: its tape, its inboxes, its pulse and its store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from decodiloco.config import Config
from decodiloco.errors import ConfigInvalid
from decodiloco.store.blobs import BlobStore
from decodiloco.store.open_store import open_store
from streams.calls import Calls
from streams.errors import PermissionDenied
from streams.inbox import Inbox
from streams.pulse import Pulse
from streams.tape import Tape


class Closable(Protocol):
    """What holds the connection that tape, inboxes and pulse share."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a run, ready for use. Memory bodies and real ones look alike.

    Without `calls` nobody can be asked for a merge.
    """

    tape: Tape
    inboxes: Mapping[str, Inbox]
    pulse: Pulse
    store: BlobStore
    calls: Calls | None = None
    held: tuple[Closable, ...] = field(default=())

    async def close(self) -> None:
        """Lets go of the connection and the store; what was said stays said."""
        for held in self.held:
            await held.close()
        await asyncio.to_thread(self.store.close)


def check_places(config: Config) -> None:
    """Raises AskedWrongly for addresses at which several processes cannot meet, or a bad key."""
    from streams.door import Door  # keys are read only where they are used

    Door.at(config.here.nats_door)
    if config.here.store.startswith("memory://"):
        raise ConfigInvalid(
            f"here.store {config.here.store}: each process would have a memory of its own; "
            "use file:///folder or s3://bucket/prefix"
        )
    open_store(config.here.store, config.here.store_endpoint).close()


def check_key(config: Config, role: str, id_: str) -> None:
    """Raises PermissionDenied for a key that is not this process's own; the operator's fits all.

    The server would find it out, too, but only at the first thing that the key does not allow.
    """
    from streams.door import Door  # keys are read only where they are used

    key = Door.at(config.here.nats_door).key
    if key is None:
        return
    whose = key.identity
    mine = (config.run.name, role, id_)
    if (whose.run, whose.role, whose.id) == mine:
        return
    if (whose.run, whose.role) == (config.run.name, "operator"):
        return
    raise PermissionDenied(
        f"{role} {id_} of run {config.run.name} may not use the key {key}: name its own with "
        "here.nats_key"
    )


async def open_places(config: Config, name: str) -> Places:
    """Connects to the run's server and store under a name that shows in their logs.

    Raises ServerUnreachable or StoreUnreachable, naming the address and what to do.
    """
    from streams.jetstream import connect  # the NATS client loads only where it is used

    store = await asyncio.to_thread(open_store, config.here.store, config.here.store_endpoint)
    connection = await connect(config.here.nats_door, name)
    run = config.run.name
    return Places(
        tape=connection.tape(run),
        inboxes={region: connection.inbox(run, region) for region in config.run.regions},
        pulse=connection.pulse(run),
        store=store,
        calls=connection.calls(run),
        held=(connection,),
    )
