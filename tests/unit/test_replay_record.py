"""A recorder follows a tape into a file, survives its own death, and never mixes two runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from replay.errors import Differs, NotReached
from replay.record import Voice, record, record_following
from replay.tape_file import read_header, read_tape_file
from streams.envelope import Envelope
from streams.framing import SEAL_BYTES
from streams.memory import MemoryTape
from tests.builders import RUN, closed, joined, left, offered, one_of_each, opened, tape_of

TAPE = tape_of(one_of_each())
LIMIT_SECONDS = 20.0


async def tape_with(tape: tuple[Envelope, ...], run: str = RUN) -> MemoryTape:
    memory = MemoryTape(run)
    if tape:
        await memory.append(tape)
    return memory


def run_limited(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await work()

    asyncio.run(limited())


def silent(text: str) -> None:
    raise AssertionError(f"nothing is to be noted, but: {text}")


def test_a_tape_is_recorded_whole_and_sealed(tmp_path: Path) -> None:
    async def work() -> None:
        recorded = await record(await tape_with(TAPE), tmp_path / "run.tape", Voice(silent))
        assert (recorded.run, recorded.events, recorded.added) == (RUN, len(TAPE), len(TAPE))
        assert recorded.digest == TAPE[-1].digest

    run_limited(work)
    assert tuple(read_tape_file(tmp_path / "run.tape")) == TAPE
    assert read_header(tmp_path / "run.tape").store == "memory://trial"


def test_what_is_new_is_added_to_a_sealed_file(tmp_path: Path) -> None:
    async def work() -> None:
        await record(await tape_with(TAPE[:7]), tmp_path / "run.tape", Voice(silent))
        recorded = await record(await tape_with(TAPE), tmp_path / "run.tape", Voice(silent))
        assert (recorded.events, recorded.added) == (len(TAPE), len(TAPE) - 7)

    run_limited(work)
    assert tuple(read_tape_file(tmp_path / "run.tape")) == TAPE


def test_a_killed_recorders_torn_tail_is_cut_with_a_note(tmp_path: Path) -> None:
    path, notes = tmp_path / "run.tape", []

    async def work() -> None:
        await record(await tape_with(TAPE), path, Voice(silent))
        path.write_bytes(path.read_bytes()[: -SEAL_BYTES - 5])
        recorded = await record(await tape_with(TAPE), path, Voice(notes.append))
        assert recorded.added == 1

    run_limited(work)
    assert tuple(read_tape_file(path)) == TAPE
    assert len(notes) == 1
    assert f"going on after position {len(TAPE) - 1}" in notes[0]


def test_a_file_of_another_run_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    twin = tape_of((opened(store="memory://other"), joined(), offered()))
    stranger = tape_of((opened("stranger"),), "stranger")

    async def work() -> None:
        await record(await tape_with(TAPE), path, Voice(silent))
        whole = path.read_bytes()
        with pytest.raises(Differs, match="another run named trial"):
            await record(await tape_with(twin), path, Voice(silent))
        with pytest.raises(Differs, match="holds run trial, not stranger"):
            await record(await tape_with(stranger, "stranger"), path, Voice(silent))
        assert path.read_bytes() == whole

    run_limited(work)


def test_a_shorter_tape_under_the_same_opening_is_another_tape(tmp_path: Path) -> None:
    async def work() -> None:
        await record(await tape_with(TAPE), tmp_path / "run.tape", Voice(silent))
        with pytest.raises(Differs, match="not on this tape"):
            await record(await tape_with(TAPE[:5]), tmp_path / "run.tape", Voice(silent))

    run_limited(work)


def test_an_empty_tape_is_not_recorded(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(NotReached, match="empty"):
            await record(await tape_with(()), tmp_path / "run.tape", Voice(silent))

    run_limited(work)
    assert list(tmp_path.iterdir()) == []


def test_a_follower_waits_for_the_opening_and_seals_when_the_closed_run_is_quiet(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.tape"
    tape = tape_of((opened(), joined(), offered(), closed(), left()))

    async def work() -> None:
        memory = await tape_with(())
        follower = asyncio.create_task(
            record_following(memory, path, asyncio.Event(), Voice(silent), quiet_seconds=0.5)
        )
        for envelope in tape:
            await memory.append([envelope])
            await asyncio.sleep(0)
        recorded = await follower
        assert recorded.events == len(tape)

    run_limited(work)
    assert tuple(read_tape_file(path)) == tape


def test_a_follower_that_is_told_to_stop_seals_what_stands_on_the_tape(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"

    async def work() -> None:
        stop = asyncio.Event()
        stop.set()
        recorded = await record_following(await tape_with(TAPE[:4]), path, stop, Voice(silent))
        assert recorded.events == 4

    run_limited(work)
    assert tuple(read_tape_file(path)) == TAPE[:4]


def test_a_follower_stopped_before_the_opening_writes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        stop = asyncio.Event()
        follower = asyncio.create_task(
            record_following(await tape_with(()), tmp_path / "run.tape", stop, Voice(silent))
        )
        stop.set()
        with pytest.raises(NotReached, match="before the run was opened"):
            await follower

    run_limited(work)
    assert list(tmp_path.iterdir()) == []


def test_a_follower_goes_on_with_the_file_of_a_killed_one(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"

    async def work() -> None:
        await record(await tape_with(TAPE[:6]), path, Voice(silent))
        path.write_bytes(path.read_bytes()[:-SEAL_BYTES])
        stop = asyncio.Event()
        follower = asyncio.create_task(
            record_following(await tape_with(TAPE), path, stop, Voice(silent), quiet_seconds=0.2)
        )
        assert (await follower).added == len(TAPE) - 6

    run_limited(work)
    assert tuple(read_tape_file(path)) == TAPE


def test_a_follower_of_a_run_that_was_closed_long_ago_seals_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"

    async def work() -> None:
        await record(await tape_with(TAPE), path, Voice(silent))
        recorded = await record_following(
            await tape_with(TAPE), path, asyncio.Event(), Voice(silent), quiet_seconds=0.1
        )
        assert recorded.added == 0

    run_limited(work)
    assert tuple(read_tape_file(path)) == TAPE
