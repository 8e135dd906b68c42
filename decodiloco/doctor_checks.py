"""The checks of `doctor` that touch the world: this installation, the server, the store."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import secrets
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

import decodiloco
from decodiloco.config import Config
from decodiloco.doctor_links import mirror_told, round_trips
from decodiloco.errors import Disagreement
from decodiloco.store.codecs import coded_bytes
from decodiloco.store.open_store import open_store
from streams.codec import seal
from streams.envelope import Envelope, genesis
from streams.errors import PermissionDenied, StreamMissing, Trouble
from streams.events import HardshipInjected, RunClosing
from streams.jetstream import Connection, connect
from streams.link import Declined, Message, answer_of
from streams.permissions import SPEAKERS, WORDS_OF
from streams.provision import provision
from streams.subjects import inbox_stream, inbox_subject, pulse_subject, tape_stream

ROUNDS = 5
PROBE_BYTES_MAX = 64 * 1024 * 1024
NEVER = 2**53  # no stream ends here: a message that expects it is refused and stored nowhere
WRONG_LAST_SEQUENCE = 10071

Measured = tuple[str, dict[str, float]]


def installation() -> list[str]:
    """Versions and the torch build; Trouble when another package took one of our names."""
    home = Path(decodiloco.__file__).parent.parent
    for name in ("streams", "replay"):
        module = importlib.import_module(name)
        if Path(module.__file__ or "").parent.parent != home:
            raise Trouble(
                f"the package {name} is taken from {module.__file__}, not from {home}: another "
                "installed package has its name; use a virtual environment of our own"
            )
    import torch

    versions = [f"python {platform.python_version()}", f"torch {torch.__version__}"]
    for package in ("decodiloco", "numpy", "nats-py"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return [*versions, f"packages in {home}"]


async def measure_server(config: Config) -> Measured:
    """JetStream, this run's streams and rights, and the round trip of an append."""
    connection = await connect(config.here.nats_door, "doctor")
    try:
        identity = connection.identity
        if identity is None or identity.role == "operator":
            await connection.wire.api("INFO")
            told = [f"JetStream answers at {connection.address}"]
        else:
            told = [f"{connection.address} knows us as {identity}"]
        run, mirror = config.run, None
        if identity is not None and identity.role == "merger":
            await _check_pulse(connection, run.name)
            told.append("it may hear syncers, and has no more to ask")
        elif last := await _last(connection, run.name):
            mirror, how = await mirror_told(connection, run.name)
            told.append(await _check_run(connection, config, last, mirror is not None) + how)
        else:
            told.append(f"run {run.name} is not open yet: `decodiloco open` does that")
        times = {"tape_seconds": await _scratch_run(connection)}
        trips = await round_trips(connection, run.name, run.regions, mirror)
        told += [f"{1000 * seconds:.1f} ms to {region}" for region, seconds in trips.items()]
        if trips:
            times["link_seconds"] = max(trips.values())
        return "; ".join(told), times
    finally:
        await connection.close()


def measure_store(config: Config) -> Measured:
    """One random blob of a delta's size is put, read and put again; it stays in the store."""
    store = open_store(config.here.store, config.here.store_endpoint)
    try:
        size = _delta_bytes(config)
        payload = secrets.token_bytes(size)
        key = f"{config.run.name}/doctor/{blake3(payload).hexdigest()[:16]}"
        upload = _timed(lambda: store.put(key, [payload]))
        download = _timed(lambda: _compare(bytes(store.read(key, 0, size)), payload, key))
        store.put(key, [payload])  # the same key again is nothing new, and must be allowed
        told = (
            f"{store.url}: put, read and put again {size:,} bytes ({_rate(size, upload)} up, "
            f"{_rate(size, download)} down); {key} stays there"
        )
        return told, {"upload_seconds": upload, "download_seconds": download}
    finally:
        store.close()


async def _last(connection: Connection, run: str) -> int:
    """The end of the run's tape; 0 while it is not open."""
    try:
        return await connection.tape(run).last()
    except StreamMissing:
        return 0


async def _check_run(connection: Connection, config: Config, last: int, is_mirror: bool) -> str:
    """Whether this run's streams are fit, and whether we may speak to them."""
    run, region = config.run.name, config.here.region
    told = f"run {run} is open, its tape ends at {last}"
    identity = connection.identity
    if identity is None or identity.role in ("learner", "syncer", "operator"):
        regions = identity.regions if identity else config.run.regions
        if not is_mirror:
            await provision(connection, run, regions)
        await _check_pulse(connection, run)
    if identity is None or identity.role in SPEAKERS:
        speaker = identity.id if identity else config.here.id or "doctor"
        kind = WORDS_OF[identity.role][0] if identity and identity.outside else RunClosing
        subject = inbox_subject(run, region, speaker, kind)
        await _may_publish(connection, subject, inbox_stream(run, region))
        told += f"; its inbox {region} may be spoken to"
    return told


async def _check_pulse(connection: Connection, run: str) -> None:
    """Whether heartbeats may be listened to."""
    link = await connection.wire.link()
    pulse = pulse_subject(run, "syncer", "doctor-listens")
    mailbox = await link.listen(pulse, 1)
    await mailbox.take(0.1)
    await link.hang_up(mailbox)


async def _may_publish(connection: Connection, subject: str, stream: str) -> None:
    """Publishes what the stream must refuse: the refusal shows the right, and nothing is said."""
    link = await connection.wire.link()
    headers = {"Nats-Expected-Last-Sequence": str(NEVER)}
    try:
        answer_of(stream, await link.request(Message(subject, b"", headers)))
    except Declined as declined:
        if declined.code != WRONG_LAST_SEQUENCE:
            raise
        return
    raise Disagreement(f"{stream} stored a message that expects sequence {NEVER}")


async def _scratch_run(connection: Connection) -> float:
    """Makes a scratch run, appends and reads back a few facts, removes it: the median seconds."""
    run = f"doctor-{secrets.token_hex(6)}"
    region = (await connection.wire.link()).client.domain or "home"
    try:
        await provision(connection, run, [region])
    except PermissionDenied:
        link = await connection.wire.link()
        return float(await link.client.rtt(5))  # only who opens runs needs to make streams
    try:
        tape = connection.tape(run)
        seconds = []
        previous = genesis(run)
        for position in range(1, ROUNDS + 1):
            envelope = _probe(position, previous)
            began_seconds = time.monotonic()
            await tape.append([envelope])
            read = await tape.read(position - 1, 1)
            seconds.append(time.monotonic() - began_seconds)
            if [each.digest for each in read] != [envelope.digest]:
                raise Disagreement(f"run {run}: position {position} does not read as written")
            previous = envelope.digest
        return statistics.median(seconds)
    finally:
        for stream in (tape_stream(run), inbox_stream(run, region)):
            await connection.wire.api(f"STREAM.DELETE.{stream}")


def _probe(position: int, previous: bytes) -> Envelope:
    event = HardshipInjected(
        speaker="doctor", life=0, said=position, hardship="probe", target="doctor", seed=0
    )
    return seal(position, previous, 0, "doctor", None, time.time(), event)


def _delta_bytes(config: Config) -> int:
    """About the size of one fragment's delta for the built-in decoder (12 width^2 a layer)."""
    model = config.run.model
    elements = 12 * model.layers * model.width**2 + 256 * model.width
    size = coded_bytes(elements // config.run.fragments, config.run.codecs.delta)
    return max(1024, min(PROBE_BYTES_MAX, size))


def _rate(size_bytes: int, seconds: float) -> str:
    return f"{1e-6 * size_bytes / max(seconds, 1e-9):.1f} MB/s"


def _compare(read: bytes, payload: bytes, key: str) -> None:
    if read != payload:
        raise Disagreement(f"blob {key} does not read as written")


def _timed(action: Callable[[], None]) -> float:
    began_seconds = time.monotonic()
    action()
    return time.monotonic() - began_seconds
