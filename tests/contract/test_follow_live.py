"""`replay follow` as a process against a real server: by a viewer's key, from anywhere."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from decodiloco.store.open_store import open_store
from streams.envelope import Envelope
from streams.events import FragmentMerged
from streams.nats_server import NatsServer
from streams.tape import BATCH_MAX
from tests.contract.doors import Doors, shut
from tests.contract.records import new_run, write_live
from tests.real_cluster import until
from tests.real_run import RealRun

LIMIT_SECONDS = 60.0


def follow(*arguments: object) -> tuple[int, list[str], str]:
    """Exit code, lines of stdout, and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "replay.cli", "follow", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines(), done.stderr


def merges_of(tape: Sequence[Envelope]) -> list[int]:
    """Where the merges stand."""
    return [e.position for e in tape if isinstance(e.event, FragmentMerged)]


@pytest.fixture
def played(nats_server: NatsServer, tmp_path: Path) -> RealRun:
    """A closed run whose tape stands on the server."""
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=4, name=new_run()).play()
    write_live(nats_server.url, run.name, run.tape)
    return run


def test_facts_are_shown_to_the_close_under_a_heading_of_all_learners(
    nats_server: NatsServer, played: RealRun
) -> None:
    code, lines, told = follow(f"{nats_server.url}/{played.name}", "--json")

    assert (code, told) == (0, "")
    assert json.loads(lines[-1]) == {
        "run": played.name,
        "ended": "closed",
        "from": 1,
        "position": len(played.tape),
    }
    shown = [line for line in lines[:-1] if line.lstrip()[:1].isdigit()]
    assert [int(line.split()[0]) for line in shown] == list(range(1, len(played.tape) + 1))
    headings = [line.split()[4:] for line in lines[:-1] if line not in shown]
    assert headings[-1] == ["a", "b", "c"]


def test_facts_are_shown_from_a_position_with_the_offers_that_they_name(
    nats_server: NatsServer, played: RealRun
) -> None:
    merged = merges_of(played.tape)[2]

    code, lines, _ = follow(f"{nats_server.url}/{played.name}", "--from", merged)

    assert code == 0
    assert lines[1].split()[0] == str(merged)
    assert lines[1].count("tok") == 3


def test_it_is_proved_by_a_viewer_who_may_only_read(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=4, name="shut").play()
    with shut(tmp_path) as doors:
        asyncio.run(written(doors, run.tape))
        place = doors.url("viewer").replace("?", "/shut?")

        code, lines, told = follow(place, "--verify", "--json")
        assert (code, told) == (0, ""), told
        found = json.loads(lines[-1])
        assert (found["ok"], found["ended"]) == (True, "closed")
        assert found["merges_checked"] == len(merges_of(run.tape))

        code, _, told = follow(doors.url("learner-a").replace("?", "/shut?"), "--verify")
        assert code == 3
        assert "learner a of run shut reads its own part" in told


async def written(doors: Doors, tape: Sequence[Envelope]) -> None:
    """Puts a tape on the server, as its syncer does."""
    await doors.open()
    async with doors.enter("operator") as (operator,):
        for start in range(0, len(tape), BATCH_MAX):
            await operator.tape(doors.run).append(tape[start : start + BATCH_MAX])


def test_shown_facts_stop_at_a_signal(nats_server: NatsServer, tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=4, name=new_run()).play()
    write_live(nats_server.url, run.name, run.tape[:9])
    out = tmp_path / "out"
    with out.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "replay.cli", "follow", f"{nats_server.url}/{run.name}"],
            stdout=stream,
            stderr=subprocess.PIPE,
        )
    try:
        asyncio.run(until(lambda: b"\n       9 " in out.read_bytes(), "all nine are shown"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.stderr is not None and process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--from", "0"), 2, "--from '0': write a position"),
        (("--verify", "--from", "9999"), 2, "ends at position"),
        (("--alarm", "x"), 2, "are read with --verify only"),
        (("--threads", "2"), 2, "are read with --verify only"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_a_line(
    nats_server: NatsServer, played: RealRun, arguments: tuple[str, ...], code: int, says: str
) -> None:
    found, _, told = follow(f"{nats_server.url}/{played.name}", *arguments)

    assert (found, told.count("\n")) == (code, 1)
    assert says in told


def test_a_run_that_is_nowhere_is_trouble(nats_server: NatsServer, tmp_path: Path) -> None:
    code, _, told = follow(f"{nats_server.url}/nowhere", "--verify")
    assert code == 3 and "no tape" in told
    code, _, told = follow("nats://127.0.0.1:1/nowhere")
    assert code == 3 and "no NATS server answers" in told


def test_an_alarm_is_an_exit_code_a_line_an_object_and_a_file(
    nats_server: NatsServer, played: RealRun, tmp_path: Path
) -> None:
    blob = next((tmp_path / "store" / played.name / "global" / "f1").glob("1-*"))
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    alarm = tmp_path / "alarm.json"

    code, lines, told = follow(
        f"{nats_server.url}/{played.name}", "--verify", "--json", "--alarm", alarm
    )

    assert code == 1
    assert told.startswith(f"replay: ALARM: run {played.name}, position ")
    assert told.count("\n") == 1
    said, last = map(json.loads, lines)
    assert said == json.loads(alarm.read_text()) == last["first_difference"]
    assert said["key"].endswith(blob.name)
    assert said["bytes"] == len(whole)

    nowhere = tmp_path / "missing" / "alarm.json"
    code, _, told = follow(f"{nats_server.url}/{played.name}", "--verify", "--alarm", nowhere)
    assert code == 1
    assert "alarm file" in told and "ALARM" in told
