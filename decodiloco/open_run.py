"""Opens a run: the first bytes into the store, the first fact onto its empty tape. Once, by anyone.

The model is the user's own or the built-in one; its parameters as they stand are version 0.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from torch import nn

from decodiloco.config import Config, Run
from decodiloco.fragments.of_model import Trained, trained
from decodiloco.learner.copies import copied
from decodiloco.learner.joining import as_config, read_opening
from decodiloco.opening import Opening, encode_opening, run_opened
from decodiloco.places import Places
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, opening_key, prefixes_of
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import encode_tensors
from decodiloco.syncer.state import RULES
from streams.codec import seal
from streams.envelope import genesis
from streams.errors import StreamExists, StreamMissing
from streams.events import RunOpened
from streams.manifest import Manifest
from streams.tape import Refused, Tape, append_surely


def open_run(config: Path | str | Config, model: nn.Module, places: Places | None = None) -> None:
    """Opens the run that the config describes, with this model's parameters as version 0.

    Raises StreamExists when the run is open already, ConfigDiffers when it is open under another
    config, StreamMissing when its tape is lost and its archive is not, ConfigInvalid when the model
    has too few tensors for `run.fragments`, ModelUnfit for a model that cannot be trained here.
    `places` are used in place of the config's addresses, and left open.
    """
    config = as_config(config)
    ours = trained(model)
    ours.layout(config.run)  # a model that does not fit is refused before anything is made
    asyncio.run(_open(config, ours, places))


async def _open(config: Config, ours: Trained, places: Places | None) -> None:
    if places is not None:
        await _append(config, ours, places.tape, places.store)
        return
    from streams.jetstream import connect  # the NATS client loads only where it is used
    from streams.provision import provision

    store = await asyncio.to_thread(open_store, config.here.store, config.here.store_endpoint)
    connection = await connect(config.here.nats_door, "opener")
    try:
        run = config.run
        await provision(connection, run.name, run.regions, run.tape_replicas)
        await _append(config, ours, connection.tape(config.run.name), store)
    finally:
        await connection.close()
        await asyncio.to_thread(store.close)


async def _append(config: Config, ours: Trained, tape: Tape, store: BlobStore) -> None:
    await _check_empty(config, tape, store)
    await asyncio.to_thread(_check_never_archived, config.run.name, store)
    opening = await asyncio.to_thread(store_opening, config.run, ours, store)
    event = run_opened(opening, store.url, RULES)
    first = seal(1, genesis(event.run), 0, config.here.id or "opener", None, time.time(), event)
    if isinstance(await append_surely(tape, [first]), Refused):
        await _check_empty(config, tape, store)


async def _check_empty(config: Config, tape: Tape, store: BlobStore) -> None:
    """Raises what a second opening is told."""
    records = await tape.read(0, 1)
    if not records:
        return
    opened = records[0].event
    if isinstance(opened, RunOpened) and opened.config_digest != config.run.digest:
        await asyncio.to_thread(read_opening, store, config.run, opened)  # what differs is told
    raise StreamExists(f"run {config.run.name} is open already; learners may join it")


def _check_never_archived(run: str, store: BlobStore) -> None:
    """Raises StreamMissing for a run that had a tape before: it is lost, and would begin anew."""
    prefix = prefixes_of(run)["archive"]
    if store.keys(prefix):
        raise StreamMissing(
            f"run {run} has no tape any more, and an archive of it in {store.url}: bring it back "
            "with `decodiloco restore`. To begin anew choose another run.name, or delete "
            f"{prefix} there"
        )


def store_opening(run: Run, ours: Trained, store: BlobStore) -> Opening:
    """The opening of this run with these first parameters, durable before it is named."""
    layout = ours.layout(run)
    manifests: list[Manifest] = []
    for fragment in range(layout.fragments):
        names = [tensor.name for tensor in layout.of(fragment)]
        encoded = encode_tensors(copied(ours.tensors, names), run.codecs.fragment)
        store.put(global_key(run.name, fragment, 0, encoded.manifest), encoded.parts)
        manifests.append(encoded.manifest)
    opening = Opening(run, layout, tuple(manifests))
    payload, manifest = encode_opening(opening)
    store.put(opening_key(run.name, manifest), [payload])
    return opening
