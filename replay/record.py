"""A live tape written to a file as it grows. Knows the tape's port, not the server behind it.

A recorder is a follower of its own: it may die at any time, and the next one goes on where the
file ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from replay.errors import Differs, NotReached
from replay.progress import Tell, silently
from replay.tape_file import Header
from replay.tape_writer import TapeWriter, open_writer
from replay.times import CATCH_UP_SECONDS, QUIET_SECONDS, SYNC_SECONDS
from streams.envelope import Envelope
from streams.errors import ChainBroken, Trouble
from streams.events import RunClosed, RunOpened
from streams.tape import BATCH_MAX, Tape, read_surely

QUEUE_MAX = 4 * BATCH_MAX


@dataclass(frozen=True, slots=True)
class Voice:
    """How a recorder speaks: notes for a person's eye, and how far it is (done, of how many)."""

    note: Callable[[str], None]
    tell: Tell = silently


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recorder leaves: a sealed file of so many records, `added` of them by this call."""

    run: str
    path: Path
    events: int
    added: int
    digest: bytes


async def record(tape: Tape, path: Path, voice: Voice) -> Recorded:
    """Writes what the tape holds now to a sealed file, or adds what is new to an existing one."""
    last = await tape.last()
    if last == 0:
        raise NotReached(f"run {tape.run}: the tape is empty; `decodiloco open` writes its opening")
    writer = await _begin(tape, path, voice)
    try:
        begun = writer.chain.position
        while writer.chain.position < last:
            batch = await read_surely(tape, writer.chain.position)
            await asyncio.to_thread(writer.append, batch)
            voice.tell(writer.chain.position, last)
        return await _sealed(writer, begun)
    finally:
        writer.close()


async def record_following(
    tape: Tape,
    path: Path,
    stop: asyncio.Event,
    voice: Voice,
    quiet_seconds: float = QUIET_SECONDS,
) -> Recorded:
    """Follows the tape into the file until the run is closed and quiet, or `stop` is set.

    What was written is durable within SYNC_SECONDS, so a kill loses at most that tail, and the
    next recorder adds it again from the tape.
    """
    arrivals: asyncio.Queue[Envelope] = asyncio.Queue(QUEUE_MAX)
    if not await _until_opened(tape, stop):
        raise NotReached(f"run {tape.run}: stopped before the run was opened; no file was written")
    writer = await _begin(tape, path, voice)
    begun = writer.chain.position
    reader = asyncio.create_task(_read_into(tape, writer.chain.position, arrivals))
    stopped = asyncio.create_task(stop.wait())
    closed = begun > 0 and await _holds_close(tape, begun)
    try:
        while True:
            patience_seconds = quiet_seconds if closed else None
            batch = await _arrived(arrivals, (reader, stopped), patience_seconds)
            if batch:
                await asyncio.to_thread(_append_durably, writer, batch)
                voice.tell(writer.chain.position, 0)
                closed = closed or any(isinstance(each.event, RunClosed) for each in batch)
                await asyncio.wait((stopped,), timeout=SYNC_SECONDS)  # one fsync serves many
            if reader.done():
                reader.result()
                raise AssertionError("a follower ended by itself")
            if stopped.done():
                reader.cancel()
                await _catch_up(tape, writer, voice)
            if stopped.done() or not batch:
                return await _sealed(writer, begun)
    finally:
        for task in (reader, stopped):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        writer.close()


async def _begin(tape: Tape, path: Path, voice: Voice) -> TapeWriter:
    """The writer at the file's end, which is sure to be a place on this very tape."""
    first = await tape.read(0, 1)
    if not first or not isinstance(first[0].event, RunOpened):
        raise ChainBroken(1, f"the tape of run {tape.run} does not begin with its opening")
    header = Header(tape.run, first[0].event.store)
    writer = await asyncio.to_thread(open_writer, path, header)
    try:
        await _check_same_tape(tape, writer)
        if writer.torn_bytes:
            voice.note(
                f"{path}: cutting {writer.torn_bytes} bytes of a record that was cut short; "
                f"going on after position {writer.chain.position}"
            )
    except BaseException:
        writer.close()
        raise
    return writer


async def _check_same_tape(tape: Tape, writer: TapeWriter) -> None:
    position = writer.chain.position
    if writer.header.run != tape.run:
        raise Differs(
            f"{writer.path} holds run {writer.header.run}, not {tape.run}; "
            "name another file with -o"
        )
    if position == 0:
        return
    there = await tape.read(position - 1, 1)
    if not there or there[0].digest != writer.chain.digest:
        raise Differs(
            f"{writer.path} is of another run named {tape.run}: its last record is not on this "
            "tape; name another file with -o",
            position,
        )


async def _until_opened(tape: Tape, stop: asyncio.Event) -> bool:
    """Waits for the tape's first record; False when `stop` came first."""
    if await tape.last() > 0:
        return True
    stopped = asyncio.create_task(stop.wait())
    follower = tape.follow(0)
    first = asyncio.ensure_future(anext(follower))
    try:
        await asyncio.wait((first, stopped), return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
        return first.done()
    finally:
        stopped.cancel()
        first.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await first
        await follower.aclose()


async def _holds_close(tape: Tape, last: int) -> bool:
    """Whether RunClosed is among the records that the file had already.

    After it only learners that leave are heard, so it stands near the end.
    """
    recent = await tape.read(max(0, last - BATCH_MAX))
    return any(isinstance(each.event, RunClosed) for each in recent if each.position <= last)


async def _read_into(tape: Tape, after: int, arrivals: asyncio.Queue[Envelope]) -> None:
    follower = tape.follow(after)
    try:
        async for envelope in follower:
            await arrivals.put(envelope)
    finally:
        await follower.aclose()


async def _arrived(
    arrivals: asyncio.Queue[Envelope],
    ends: tuple[asyncio.Task[None], asyncio.Task[bool]],
    patience_seconds: float | None,
) -> list[Envelope]:
    """Records that came, in order; none when a task of `ends` is done or patience ends."""
    if arrivals.empty():
        getter = asyncio.create_task(arrivals.get())
        await asyncio.wait(
            (getter, *ends), timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if not getter.done():
            getter.cancel()
            with suppress(asyncio.CancelledError):
                await getter
            return []
        batch = [getter.result()]
    else:
        batch = []
    while not arrivals.empty() and len(batch) < QUEUE_MAX:
        batch.append(arrivals.get_nowait())
    return batch


async def _catch_up(tape: Tape, writer: TapeWriter, voice: Voice) -> None:
    """Adds what the tape holds when a follower is told to stop, if the server still answers."""
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS):
            last = await tape.last()
            while writer.chain.position < last:
                batch = await tape.read(writer.chain.position)
                await asyncio.to_thread(writer.append, batch)
    except (Trouble, TimeoutError) as error:
        voice.note(
            f"{writer.path}: told to stop, and the server no longer answers ({error}); sealed at "
            f"position {writer.chain.position}"
        )


def _append_durably(writer: TapeWriter, batch: list[Envelope]) -> None:
    writer.append(batch)
    writer.sync()


async def _sealed(writer: TapeWriter, begun: int) -> Recorded:
    await asyncio.to_thread(writer.seal)
    chain = writer.chain
    return Recorded(
        writer.header.run, writer.path, chain.position, chain.position - begun, chain.tip
    )
