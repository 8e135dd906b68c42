"""`decodiloco archive`: a process that puts finished stretches of the tape into the store.

It looks at the tape's end each second, two small requests, and reads facts only once a stretch
is due. It may die at any time: the next one goes on after the newest segment in the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from decodiloco.archive.segments import archived_to, cut
from decodiloco.errors import StoreUnreachable
from decodiloco.stopping import heeded
from decodiloco.store.blobs import BlobStore
from decodiloco.telemetry import log
from decodiloco.times import (
    ARCHIVE_FAREWELL_SECONDS_MAX,
    ARCHIVE_LOOK_SECONDS,
    ARCHIVE_QUIET_SECONDS,
)
from decodiloco.visit import Address, visited
from streams.chain import Chain
from streams.envelope import Envelope
from streams.errors import ServerUnreachable, Trouble
from streams.events import RunClosed
from streams.known_end import altered, shorter
from streams.segment import FACTS_MAX
from streams.tape import BATCH_MAX, Tape, read_surely

LOOKS_MAX = 4  # a leader that was deposed a moment ago may still answer, from its past


@dataclass(frozen=True, slots=True)
class Archived:
    """What a call of the archiver leaves: the position archived up to, and what it added."""

    position: int
    facts: int
    segments: int


class Keeper:
    """Carries one run's tape into one store, from where the archive ends. Begin with `open`."""

    def __init__(self, tape: Tape, store: BlobStore, chain: Chain) -> None:
        self.chain = chain
        self.facts = 0
        self.segments = 0
        self.closed = False
        self._tape = tape
        self._store = store
        self._cut: tuple[str, bytes, Chain] | None = None  # its bytes stay, however often it fails
        self._log = log("archive")

    @classmethod
    async def open(cls, tape: Tape, store: BlobStore) -> Keeper:
        """Finds where the archive ends, and that it is an archive of this very tape.

        Raises SegmentCorrupt for a newest segment that was altered, ChainBroken
        where tape and archive part.
        """
        chain = await asyncio.to_thread(archived_to, store, tape.run)
        keeper = cls(tape, store, chain)
        await keeper.waiting()
        if chain.position:
            recent = await tape.read(max(0, chain.position - BATCH_MAX))
            keeper._heed([one for one in recent if one.position <= chain.position])
        return keeper

    async def waiting(self) -> int:
        """How many facts are not archived yet; checks that the tape is still what it was."""
        end, tape = self.chain, f"the tape of run {self._tape.run}"
        if end.position == 0:
            return await self._tape.last()
        for _ in range(LOOKS_MAX):
            last = await self._tape.last()
            there = await self._tape.read(end.position - 1, 1)
            if there and there[0].digest != end.digest:
                raise altered(tape, end.position, end.digest, there[0].digest)
            if there and last >= end.position:
                return last - end.position
            await asyncio.sleep(ARCHIVE_LOOK_SECONDS / LOOKS_MAX)
        raise shorter(tape, end.position, last)

    async def store(self, waiting: int) -> None:
        """Puts so many facts into the store, a segment at a time."""
        end = self.chain.position + waiting
        while self.chain.position < end:
            if self._cut is None:
                records = await self._records(min(end, self.chain.position + FACTS_MAX))
                key, payload = cut(self.chain, records)
                after = Chain(self.chain.run, records[-1].position, records[-1].digest)
                self._cut = key, payload, after
                self._heed(records)
            key, payload, after = self._cut
            await asyncio.to_thread(self._store.put, key, [payload])
            self._log.info("archived", key=key, to=after.position, bytes=len(payload))
            self.facts += after.position - self.chain.position
            self.segments += 1
            self.chain, self._cut = after, None

    async def _records(self, stop: int) -> list[Envelope]:
        records: list[Envelope] = []
        after = self.chain.position
        while after < stop:
            batch = await read_surely(self._tape, after, min(BATCH_MAX, stop - after))
            records += batch
            after = batch[-1].position
        return records

    def _heed(self, records: list[Envelope]) -> None:
        self.closed = self.closed or any(isinstance(one.event, RunClosed) for one in records)


async def archive(
    tape: Tape, store: BlobStore, stop: asyncio.Event, age_seconds: float, once: bool = False
) -> Archived:
    """Archives until the run is closed and quiet, or `stop` is set; with `once` what is there now.

    Rides over a server and a store that do not answer. Raises Corrupt where tape or archive are
    not what they were, PermissionDenied and StoreDenied.
    """
    keeper = await Keeper.open(tape, store)
    if once:
        await keeper.store(await keeper.waiting())
    else:
        await _accompany(keeper, stop, age_seconds)
    return Archived(keeper.chain.position, keeper.facts, keeper.segments)


async def _accompany(keeper: Keeper, stop: asyncio.Event, age_seconds: float) -> None:
    clock = asyncio.get_running_loop().time
    since: float | None = None  # when the oldest fact that waits was first seen
    heard = clock()
    while not stop.is_set():
        try:
            waiting = await keeper.waiting()
            if waiting:
                heard = clock()
                since = heard if since is None else since
            if waiting >= FACTS_MAX or (since is not None and clock() - since >= age_seconds):
                await keeper.store(waiting)
                since = None
        except (ServerUnreachable, StoreUnreachable) as error:
            log("archive").warning("trying again", reason=str(error))
        if keeper.closed and since is None and clock() - heard >= ARCHIVE_QUIET_SECONDS:
            return
        try:
            async with asyncio.timeout(ARCHIVE_LOOK_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
    try:
        async with asyncio.timeout(ARCHIVE_FAREWELL_SECONDS_MAX):
            await keeper.store(await keeper.waiting())
    except TimeoutError:
        raise Trouble(
            f"run {keeper.chain.run}: told to stop, and what came after position "
            f"{keeper.chain.position} could not be archived within "
            f"{ARCHIVE_FAREWELL_SECONDS_MAX:.0f} s"
        ) from None


async def run_archive(address: Address, age_seconds: float, once: bool) -> Archived:
    """The archiver of a run that is open, found by its address; ends in good order when asked."""
    stop = asyncio.Event()
    for number in heeded():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with visited(address, "archive") as visit:
        return await archive(visit.tape, visit.store, stop, age_seconds, once)
