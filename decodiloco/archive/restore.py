"""`decodiloco restore`: a run's streams made again, on empty servers, from the archive alone.

The archive is checked end to end before a server is touched. Every fact goes back byte for byte
to its own position, so the tape's digest is the same, and whoever follows it goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from decodiloco.archive.segments import archived
from decodiloco.config import Config
from decodiloco.config_faults import first_difference
from decodiloco.errors import BlobMissing, ConfigDiffers, Disagreement
from decodiloco.keys import learners_in, operators_door
from decodiloco.opening import decode_opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import named_by, opening_key
from decodiloco.store.open_store import open_store
from decodiloco.store.small import read_small
from streams.chain import Chain
from streams.envelope import Envelope
from streams.errors import SegmentCorrupt, Trouble
from streams.events import (
    DeltaOffered,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    RunClosed,
    RunOpened,
)
from streams.permissions import Identity
from streams.tape import BATCH_MAX, Stored, Tape, append_surely


@dataclass(slots=True)
class Found:
    """What an archive holds, as far as it was read: its end, and what to tell of it."""

    chain: Chain
    opened: RunOpened | None = None
    step: int = 0
    time_seconds: float = 0.0
    closed: bool = False
    learners: dict[str, int] = field(default_factory=dict)
    """The step of each living learner's last word."""
    newest: dict[int, FragmentMerged] = field(default_factory=dict)
    """The last merge of each fragment: what the run goes on from."""

    def take(self, record: Envelope) -> None:
        """One record more."""
        self.chain = Chain(self.chain.run, record.position, record.digest)
        self.time_seconds = record.time_seconds
        match record.event:
            case RunOpened():
                self.opened = record.event
            case FragmentMerged(step=step, fragment=fragment):
                self.step = step
                self.newest[fragment] = record.event
            case LearnerJoined(learner=learner) | DeltaOffered(learner=learner):
                self.learners[learner] = record.event.learner_step
            case LearnerLeft(learner=learner) | LearnerLost(learner=learner):
                self.learners.pop(learner, None)
            case RunClosed():
                self.closed = True

    def lines(self, now_seconds: float) -> Iterator[str]:
        """For people: what is back, what is lost, what becomes of the learners."""
        run, chain = self.chain.run, self.chain
        age_seconds = max(0.0, now_seconds - self.time_seconds)
        yield (
            f"run {run} is restored: positions 1 to {chain.position}, {self.step} merges; its last "
            f"record is {chain.digest.hex()[:16]}, written {age_seconds:.0f} s ago"
        )
        if self.closed:
            yield "the run was closed before: nothing of it is missing but farewells, if any"
            return
        yield (
            f"lost with the servers: every fact after position {chain.position}. Merges made then "
            "are made again, from new offers"
        )
        for learner in sorted(self.learners):
            yield (
                f"learner {learner}: goes on at step {self.learners[learner]}, its last word in "
                "the archive; what it trained after that is trained again and never counted"
            )
        yield "start the syncers, then the learners: each life joins anew"


def restore_run(config: Config, folder: Path, keys: Path | None = None) -> Iterator[str]:
    """Restores, and tells what is back and what is lost.

    `folder` is that of run.toml, where a recording may lie; `keys` is the folder of the run's keys.
    """
    door, learners = config.here.nats_door, list[Identity]()
    if keys is not None:
        door, learners = operators_door(config, keys), learners_in(keys, config.run.name)
    found = asyncio.run(restore(config, door, learners))
    yield from found.lines(time.time())
    yield from _set_aside(folder / "run.tape")
    if config.here.nats_key is not None and keys is None:
        yield "its learners have no readers yet: `decodiloco keys RUN.toml --out DIR --apply`"


def _set_aside(recording: Path) -> Iterator[str]:
    """A recording of what is lost keeps its facts under another name: a new one begins anew."""
    if not recording.is_file():
        return
    names = (recording.with_name(f"run.before-{number}.tape") for number in count(1))
    aside = next(name for name in names if not name.exists())
    try:
        recording.rename(aside)
    except OSError as error:
        raise Trouble(
            f"the run is restored, but {recording} cannot be moved aside ({error.strerror}): do "
            "so, since it may hold facts that are lost"
        ) from None
    yield f"{recording}, which may hold facts that are lost, is now {aside.name}"


async def restore(config: Config, door: str, learners: Sequence[Identity]) -> Found:
    """Puts the archive of the config's run back onto its servers; `learners` get their readers.

    `door` is the servers' address, with the operator's key where there are keys. Raises
    SegmentCorrupt for an archive with a gap, a fork or an altered segment, ConfigDiffers for that
    of a run opened with other settings, BlobMissing for one whose newest versions are gone,
    Trouble where there is none, and StreamExists for a server that holds facts of this run. One
    that was stopped is ended by the next.
    """
    from streams import restoring
    from streams.jetstream import connect  # the NATS client loads only where it is used
    from streams.provision import provision_readers

    run = config.run
    store = await asyncio.to_thread(open_store, config.here.store, config.here.store_endpoint)
    try:
        found = await asyncio.to_thread(examine, config, store)
        connection = await connect(door, "restore")
        try:
            there = await restoring.begin(connection, run.name, run.tape_replicas)
            await put_back(connection.tape(run.name), store, there, found.chain)
            for identity in learners:
                await provision_readers(connection, identity)
            await restoring.end(connection, run.name, run.regions, run.tape_replicas)
        finally:
            await connection.close()
    finally:
        await asyncio.to_thread(store.close)
    return found


def examine(config: Config, store: BlobStore) -> Found:
    """Reads the archive from its first byte to its last, and that it is of this config's run."""
    run = config.run.name
    found = Found(Chain(run))
    for record in archived(store, run):
        found.take(record)
        if record.position == 1:
            _check_opening(config, store, record)
    if not found.chain.position:
        raise Trouble(
            f"run {run} has no archive in {store.url}: `decodiloco "
            "archive` makes one while a run lives; nothing can be restored"
        )
    _check_bytes(store, found)
    return found


async def put_back(tape: Tape, store: BlobStore, there: int, chain: Chain) -> None:
    """Appends the archived records after the first `there`, which must be those of the archive."""
    records = archived(store, tape.run)
    before = Chain(tape.run)
    while batch := await asyncio.to_thread(_next_of, records):
        held = [one for one in batch if one.position <= there]
        if held:
            await _check_held(tape, held[-1])
        if missing := batch[len(held) :]:
            outcome = await append_surely(tape, missing)
            if not isinstance(outcome, Stored):
                raise Disagreement(
                    f"run {tape.run}: somebody writes to the tape that is being restored "
                    f"({outcome.why}); stop every syncer, delete its stream, and restore again"
                )
        before = Chain(tape.run, batch[-1].position, batch[-1].digest)
    if before != chain:
        raise SegmentCorrupt(
            f"the archive of run {tape.run} ended at position {chain.position} when it was checked "
            f"and at {before.position} when it was put back: stop `decodiloco archive`, and "
            "restore again"
        )
    if there > chain.position:
        raise Disagreement(
            f"run {tape.run}: the stream holds {there} facts, the archive {chain.position}; delete "
            "the stream and restore again"
        )


async def _check_held(tape: Tape, record: Envelope) -> None:
    held = await tape.read(record.position - 1, 1)
    if not held or held[0].digest != record.digest:
        raise Disagreement(
            f"run {tape.run}: the stream that an earlier restore began holds another fact at "
            f"position {record.position} than the archive; delete the stream and restore again"
        )


def _check_bytes(store: BlobStore, found: Found) -> None:
    """The bytes that the run would go on from: an archive that lags may end below a horizon."""
    run = found.chain.run
    for fragment in sorted(found.newest):
        for key, manifest in named_by(run, found.newest[fragment]):
            if store.size(key) != manifest.bytes:
                raise BlobMissing(
                    f"the archive of run {run} ends at position {found.chain.position}, and the "
                    f"run cannot go on from there: blob {key} is not in {store.url} any more. "
                    "A horizon that rose later let go of it, or it is lost: bring it back from a "
                    f"copy. Nothing was restored; `replay show {store.url}/{run}` tells the facts"
                )


def _next_of(records: Iterator[Envelope]) -> list[Envelope]:
    return list(islice(records, BATCH_MAX))


def _check_opening(config: Config, store: BlobStore, first: Envelope) -> None:
    opened, run = first.event, config.run
    if not isinstance(opened, RunOpened) or opened.run != run.name:
        raise SegmentCorrupt(f"the archive of run {run.name} does not begin with its opening")
    if opened.config_digest == run.digest:
        return
    key = opening_key(run.name, opened.opening)
    opening = decode_opening(read_small(store, key, opened.opening), opened.opening)
    difference = first_difference(run, opening.run)
    if difference is not None:
        raise ConfigDiffers(f"run {run.name}: {difference}")
