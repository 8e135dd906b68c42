"""A live run on a real server against its recording: they agree, or the first lie is found."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from decodiloco.store.open_store import open_store
from replay.record import Voice, record
from replay.tape_file import Header, read_tape_file
from replay.tape_writer import open_writer
from streams.codec import seal
from streams.envelope import Envelope
from streams.events import FragmentMerged
from streams.jetstream import connect
from streams.nats_server import NatsServer
from tests.contract.records import new_run, write_live
from tests.real_run import RealRun


def recorded(url: str, run: str, path: Path) -> Path:
    async def work() -> None:
        connection = await connect(url, "test")
        try:
            await record(connection.tape(run), path, Voice(lambda text: None))
        finally:
            await connection.close()

    asyncio.run(work())
    return path


def diff(*arguments: object) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "replay.cli", "diff", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def with_a_lie(tape: list[Envelope], at: int) -> list[Envelope]:
    """A sound chain of its own in which one offer is not in the merge that it was in."""
    again = tape[: at - 1]
    for envelope in tape[at - 1 :]:
        event = envelope.event
        if envelope.position == at:
            assert isinstance(event, FragmentMerged)
            event = event.model_copy(update={"contributions": event.contributions[:-1]})
        again.append(
            seal(
                envelope.position,
                again[-1].digest,
                envelope.fence,
                envelope.writer,
                envelope.source,
                envelope.time_seconds,
                event,
            )
        )
    return again


def test_a_live_run_agrees_with_its_recording_also_when_that_is_behind(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=4, name=new_run()).play()
    live, path = f"{nats_server.url}/{run.name}", tmp_path / "run.tape"
    write_live(nats_server.url, run.name, run.tape[:20])
    recorded(nats_server.url, run.name, path)

    code, lines = diff(live, path)
    assert (code, lines[-1]) == (0, "and end there, both of them")

    write_live(nats_server.url, run.name, run.tape[20:])
    more = len(run.tape) - 20
    code, lines = diff(live, path, "--json")
    assert code == 0
    assert lines[-2] == (
        f"A goes on for {more} facts more; B tells no more, and contradicts none of it"
    )
    told = json.loads(lines[-1])
    assert (told["agreed_position"], told["facts"]) == (20, [len(run.tape), 20])

    recorded(nats_server.url, run.name, path)
    assert diff(path, live)[0] == 0


def test_a_recording_that_lies_is_found_out_by_the_live_run(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=4, name=new_run()).play()
    write_live(nats_server.url, run.name, run.tape)
    honest = recorded(nats_server.url, run.name, tmp_path / "honest.tape")
    tape = list(read_tape_file(honest))
    at = next(each.position for each in tape if isinstance(each.event, FragmentMerged))
    writer = open_writer(tmp_path / "lying.tape", Header(run.name, run.store.url))
    writer.append(with_a_lie(tape, at))
    writer.seal()

    code, lines = diff(f"{nats_server.url}/{run.name}", tmp_path / "lying.tape", "--merges", 1)

    assert code == 1
    assert f"they part at position {at}" in lines
    assert any(line.startswith("    contributions[") and "-> absent" in line for line in lines)
    follows = next(line for line in lines if line.startswith("f"))
    assert follows.endswith("contributions, weights, deltas")
    shares = [line[:5] for line in lines if ", weight " in line]
    assert shares == ["-   a", "+   a", "-   b", "+   b", "-   c"]
