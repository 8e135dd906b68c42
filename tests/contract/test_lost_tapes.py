"""A tape that was purged, cut, made again or altered: all notice, and nobody writes to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from decodiloco.archive.keeper import Keeper
from decodiloco.store.memory import MemoryStore
from replay.errors import Differs, NotReached
from replay.live import read_live
from replay.record import Voice, record, record_following
from streams import restoring
from streams.chain import Chain
from streams.codec import seal
from streams.envelope import Envelope
from streams.errors import ChainBroken, Corrupt, StreamExists, StreamMissing, StreamUnfit
from streams.jetstream import Connection, connect
from streams.known_end import WHAT_NOW
from streams.nats_server import NatsServer
from streams.outside_tape import PolledTape
from streams.permissions import Identity
from streams.provision import provision, tape_settings
from streams.tape import Refused, Stored, append_surely
from tests.builders import opened, round_opened, tape_of
from tests.contract.nats_faults import Line, opened_run, port_of
from tests.contract.records import new_run

END = 8
HARMS = {
    "emptied": r"position 8: .* found none",
    "purged": r"position 8: .* found none",
    "cut": r"position 8: .* found none",
    "another of the same length": r"position 8: .* made again or altered: expected the record",
    "another that is longer": r"position 8: .* made again or altered: expected the record",
    "its last fact altered": r"position 8: .* made again or altered: expected the record",
}


def rounds(run: str, count: int, first: int = 0) -> tuple[Envelope, ...]:
    return tape_of(
        [opened(run), *(round_opened(round=first + number) for number in range(count - 1))], run
    )


def following(tape: Sequence[Envelope], count: int = 1) -> list[Envelope]:
    """Records that a writer who knows this tape would write next."""
    chain, records = Chain("x", tape[-1].position, tape[-1].digest), []
    for number in range(count):
        event = round_opened(round=90 + number)
        records.append(seal(chain.position + 1, chain.tip, 0, "s", None, 0.0, event))
        chain = Chain("x", records[-1].position, records[-1].digest)
    return records


async def harm(operator: Connection, run: str, how: str) -> list[bytes]:
    """Does it to the tape of END facts; the digests that stand there then."""
    tape, other = rounds(run, END), rounds(run, END + 3, first=50)
    left: Sequence[Envelope] = {
        "emptied": (),
        "purged": (),
        "cut": tape[:3],
        "another of the same length": other[:END],
        "another that is longer": other,
        "its last fact altered": (*tape[: END - 1], *following(tape[: END - 1])),
    }[how]
    await operator.wire.api(f"STREAM.DELETE.TAPE_{run}")
    if how == "purged":  # what a purge leaves: nothing, and the numbering goes on
        settings = {**tape_settings(run), "first_seq": END + 1}
        await operator.wire.api(f"STREAM.CREATE.TAPE_{run}", settings)
    await provision(operator, run, ["home"])
    if left:
        assert isinstance(await operator.tape(run).append(left), Stored)
    return [one.digest for one in left]


async def standing(operator: Connection, run: str) -> list[bytes]:
    """The digests of all that lies in the stream."""
    tape = operator.tape(run)
    return [one.digest for one in await tape.read(0)] if await tape.last() else []


@asynccontextmanager
async def far(server: NatsServer) -> AsyncIterator[tuple[Line, str, Connection, Connection]]:
    """A run of END facts: the line to it, its name, an operator near it, and us at the far end."""
    run = new_run()
    async with (
        Line(port_of(server.url)).open() as line,
        opened_run(server.url, run) as operator,
        asyncio.timeout(25),
    ):
        await operator.tape(run).append(rounds(run, END))
        connection = await connect(line.url, "test")
        try:
            yield line, run, operator, connection
        finally:
            await connection.close()


async def harm_unseen(line: Line, operator: Connection, run: str, how: str) -> None:
    """While the line is down: what comes back is a server that is not what it was."""
    line.down = True
    line.cut()
    await harm(operator, run, how)
    line.down = False


async def take(followed: AsyncGenerator[Envelope, None], count: int) -> list[Envelope]:
    return [await anext(followed) for _ in range(count)]


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("who", ["syncer", "learner", "viewer"])
def test_who_follows_a_tape_notices_what_happened_to_it(
    nats_server: NatsServer, who: str, how: str
) -> None:
    async def story() -> None:
        async with far(nats_server) as (line, run, operator, connection):
            tape = connection.tape(run)
            if who == "viewer":
                tape = PolledTape(connection.wire, run, Identity(run, "viewer", "v", ("home",)))
            async with aclosing(tape.follow(0, "a" if who == "learner" else None)) as followed:
                await take(followed, END)
                waiting = asyncio.create_task(take(followed, 1))
                await harm_unseen(line, operator, run, how)

                with pytest.raises(ChainBroken, match=HARMS[how]) as told:
                    await waiting

            assert f"TAPE_{run}" in str(told.value)
            assert WHAT_NOW in str(told.value)

    asyncio.run(story())


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("size", [1, 3])
def test_a_writer_writes_nothing_to_a_tape_that_is_not_what_it_was(
    nats_server: NatsServer, size: int, how: str
) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection, asyncio.timeout(25):
            tape = rounds(run, END)
            await connection.tape(run).append(tape)
            left = await harm(connection, run, how)

            with pytest.raises(ChainBroken, match=r"position 8: .*(expected one|expected the rec)"):
                await append_surely(connection.tape(run), following(tape, size))

            assert await standing(connection, run) == left

    asyncio.run(story())


def test_a_writer_whose_place_was_taken_is_still_only_refused(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            tape = rounds(run, END)
            await connection.tape(run).append(tape)

            outcome = await append_surely(connection.tape(run), following(tape[:5], 2))

            assert isinstance(outcome, Refused)

    asyncio.run(story())


@pytest.mark.parametrize("how", HARMS)
def test_an_archiver_notices_and_archives_nothing_of_it(nats_server: NatsServer, how: str) -> None:
    async def story() -> None:
        run, store = new_run(), MemoryStore(how.replace(" ", "-"))
        async with opened_run(nats_server.url, run) as connection, asyncio.timeout(25):
            await connection.tape(run).append(rounds(run, END))
            keeper = await Keeper.open(connection.tape(run), store)
            await keeper.store(await keeper.waiting())
            await harm(connection, run, how)

            with pytest.raises(ChainBroken, match=HARMS[how].replace(".*", f".*{run}.*", 1)):
                await keeper.waiting()
            with pytest.raises(Corrupt):
                await Keeper.open(connection.tape(run), store)

            assert len(store.keys(f"{run}/archive/")) == 1

    asyncio.run(story())


@pytest.mark.parametrize("how", HARMS)
def test_a_recorder_notices_and_seals_nothing_of_it(
    nats_server: NatsServer, tmp_path: Path, how: str
) -> None:
    async def story() -> None:
        path, reached = tmp_path / "run.tape", asyncio.Event()
        voice = Voice(lambda _: None, lambda done, _: reached.set() if done == END else None)
        async with far(nats_server) as (line, run, operator, connection):
            tape, stop = connection.tape(run), asyncio.Event()
            recording = asyncio.create_task(record_following(tape, path, stop, voice))
            await reached.wait()
            await harm_unseen(line, operator, run, how)

            with pytest.raises(ChainBroken, match=HARMS[how]):
                await recording
            before = path.read_bytes()
            with pytest.raises((ChainBroken, Differs, NotReached)):
                await record(tape, path, voice)

            assert path.read_bytes() == before

    asyncio.run(story())


@pytest.mark.parametrize("how", ["one in the middle altered", "purged"])
def test_a_reader_from_the_start_notices_one_altered_fact(
    nats_server: NatsServer, how: str
) -> None:
    run = new_run()

    async def story() -> None:
        async with opened_run(nats_server.url, run) as connection:
            tape = rounds(run, END)
            if how == "purged":
                await connection.tape(run).append(tape)
                await harm(connection, run, how)
                return
            await connection.tape(run).append((*tape[:3], *following(tape[:3])))
            link = await connection.wire.link()
            for one in tape[4:]:  # past our own writer, who would not
                await link.request(connection.tape(run)._messages([one])[0])
            with pytest.raises(ChainBroken, match=r"position 4: .* made again or altered"):
                async with aclosing(connection.tape(run).follow(0)) as followed:
                    await take(followed, END)

    asyncio.run(story())
    with pytest.raises((ChainBroken, StreamMissing)):
        list(read_live(nats_server.url, run))


def test_a_tape_that_is_gone_says_how_to_bring_it_back(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection, asyncio.timeout(25):
            await connection.tape(run).append(rounds(run, 2))
            async with aclosing(connection.tape(run).follow(0)) as followed:
                await take(followed, 2)
                waiting = asyncio.create_task(take(followed, 1))
                await connection.wire.api(f"STREAM.DELETE.TAPE_{run}")
                with pytest.raises(StreamMissing, match=rf"run {run} has no tape .* `.* restore`"):
                    await waiting

    asyncio.run(story())


def test_nobody_takes_a_tape_that_is_being_restored_for_the_whole(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        connection = await connect(nats_server.url, "test")
        try:
            assert await restoring.begin(connection, run, 1) == 0
            await connection.tape(run).append(rounds(run, 3))

            with pytest.raises(StreamUnfit, match="being restored"):
                await connection.tape(run).last()
            with pytest.raises(StreamUnfit, match="being restored"):
                await provision(connection, run, ["home"])
            assert await restoring.begin(connection, run, 1) == 3
            await restoring.end(connection, run, ["home"], 1)

            assert await connection.tape(run).last() == 3
            await provision(connection, run, ["home"])
            with pytest.raises(StreamExists, match=rf"run {run} has a tape of 3 facts"):
                await restoring.begin(connection, run, 1)
        finally:
            await connection.close()

    asyncio.run(story())


def test_what_is_told_names_stream_expected_and_found(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection, asyncio.timeout(25):
            tape = rounds(run, END)
            await connection.tape(run).append(tape)
            await harm(connection, run, "another of the same length")
            expected, found = tape[-1].digest.hex()[:16], rounds(run, END, 50)[-1].digest.hex()[:16]
            words = rf"TAPE_{re.escape(run)} .* {expected} there, found {found}; nothing is written"
            with pytest.raises(ChainBroken, match=words):
                await connection.tape(run).append(following(tape))

    asyncio.run(story())
