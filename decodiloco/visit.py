"""A run found by its address and looked at from outside: its tape, an inbox, its opening.

An address is a run folder, a run.toml or `nats://host:port/run`. Nothing else is guessed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from decodiloco.config import load_config
from decodiloco.errors import BlobMissing, StoreDenied, StoreUnreachable
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.open_store import open_store
from decodiloco.stored_opening import read_opening
from streams.address import parse_run_address, without_user
from streams.envelope import Envelope
from streams.errors import AskedWrongly, ServerUnreachable, StreamMissing
from streams.events import RunOpened
from streams.inbox import Inbox
from streams.pulse import Pulse
from streams.tape import BATCH_MAX, Tape, read_surely

if TYPE_CHECKING:
    from streams.jetstream import Connection


@dataclass(frozen=True, slots=True)
class Address:
    """Where a run's server is, and its name; a run.toml also tells its store.

    `nats` may name key and CA files in its query: `nats://host:port/run?key=FILE&ca=FILE`.

    `recorded` is the run folder, if it holds a tape file that can be read without the server.
    """

    nats: str = field(repr=False)
    run: str
    store: str | None = None
    store_endpoint: str | None = None
    region: str | None = None
    recorded: Path | None = None


@dataclass(frozen=True, slots=True)
class Visit:
    """A run as a visitor holds it. `inbox` is that of the visitor's region."""

    opening: Opening
    connection: Connection
    tape: Tape
    inbox: Inbox
    pulse: Pulse
    store: BlobStore


def address_of(place: str, store_endpoint: str | None = None) -> Address:
    """The address that RUN means; AskedWrongly when it is no place of a run."""
    if "://" in place:
        url, run = parse_run_address(place)
        return Address(url, run, store_endpoint=store_endpoint)
    path = Path(place)
    try:
        toml = path / "run.toml" if path.is_dir() else path
        is_there = toml.is_file()
    except OSError:  # a name that no file can have
        is_there = False
    if not is_there:
        raise AskedWrongly(
            f"{without_user(place)}: no run is there; name a run folder, a run.toml or nats://host:port/run"
        )
    config = load_config(toml)
    here = config.here
    endpoint = store_endpoint or here.store_endpoint
    recorded = toml.parent if (toml.parent / "run.tape").exists() else None
    return Address(here.nats_door, config.run.name, here.store, endpoint, here.region, recorded)


@asynccontextmanager
async def visited(address: Address, name: str) -> AsyncIterator[Visit]:
    """Connects to a run that is open. Raises ServerUnreachable or StreamMissing, with its name."""
    from streams.jetstream import connect

    try:
        connection = await connect(address.nats, name)
    except ServerUnreachable as error:
        if address.recorded is None:
            raise
        raise ServerUnreachable(
            f"{error}; what was recorded is told by `replay show {address.recorded}`"
        ) from None
    try:
        tape = connection.tape(address.run)
        first = await tape.read(0, 1)
        if not first or not isinstance(first[0].event, RunOpened):
            raise StreamMissing(
                f"run {address.run} at {connection.address} is not opened; "
                "`decodiloco open` does that"
            )
        opened = first[0].event
        place = address.store or opened.store
        store = await asyncio.to_thread(open_store, place, address.store_endpoint)
        try:
            opening = await _opening(store, address, opened)
            region = address.region or opening.run.regions[0]
            inbox = connection.inbox(address.run, region)
            pulse = connection.pulse(address.run)
            yield Visit(opening, connection, tape, inbox, pulse, store)
        finally:
            await asyncio.to_thread(store.close)
    finally:
        await connection.close()


async def records_to(tape: Tape, last: int, after: int = 0) -> AsyncIterator[Envelope]:
    """The records behind a position, up to another. Raises ChainBroken where one is missing."""
    while after < last:
        records = await read_surely(tape, after, min(BATCH_MAX, last - after))
        for envelope in records:
            yield envelope
        after = records[-1].position


async def _opening(store: BlobStore, address: Address, opened: RunOpened) -> Opening:
    try:
        return await asyncio.to_thread(read_opening, store, opened)
    except (BlobMissing, StoreDenied, StoreUnreachable) as error:
        if address.store is not None:
            raise
        raise type(error)(
            f"{error}. {opened.store} is what the tape names; if it is reached another way from "
            "here, name the run's run.toml instead, or its S3 server with --store-endpoint"
        ) from None
