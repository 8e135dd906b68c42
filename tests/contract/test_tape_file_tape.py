"""A tape file says what the tape says that it was recorded from, whatever body that has.

The recorder is also run as the process that it is: followed, killed, continued, told to stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import replay
from decodiloco.store.open_store import open_store
from replay.errors import PlaceUnknown
from replay.place import find_place
from replay.record import Voice, record, record_following
from replay.records import Records
from replay.tape_file import read_tape_file
from replay.verify import verify_place
from streams.errors import Corrupt, StreamMissing
from streams.events import FragmentMerged
from streams.nats_server import NatsServer
from streams.tape import BATCH_MAX
from tests.builders import one_of_each, opened, round_opened, tape_of
from tests.contract.records import Ground, Record, new_run, write_live
from tests.real_run import RealRun

LIMIT_SECONDS = 30.0


def silent(text: str) -> None:
    raise AssertionError(text)


def records_in(path: Path) -> int:
    """How many whole, chained records a file holds, sealed or not."""
    count = 0
    if path.exists():
        try:
            for _ in read_tape_file(path):
                count += 1
        except Corrupt:
            return count
    return count


def wait_for(path: Path, count: int) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while records_in(path) < count:
        assert time.monotonic() < deadline, f"{path} holds {records_in(path)} of {count}"


@contextmanager
def recorder(url: str, run: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """`replay record --follow` as a process; whatever happens, it does not outlive the test."""
    command = [sys.executable, "-m", "replay.cli", "record", f"{url}/{run}", "-o", str(path)]
    process = subprocess.Popen(
        [*command, "--follow", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=LIMIT_SECONDS)


def test_a_recorded_tape_is_the_tape(ground: Ground, tmp_path: Path) -> None:
    async def story(there: Record) -> None:
        tape = tape_of(one_of_each(), there.run)
        await there.tape.append(tape[:5])
        await record(there.tape, tmp_path / "run.tape", Voice(silent))
        await there.tape.append(tape[5:])
        recorded = await record(there.tape, tmp_path / "run.tape", Voice(silent))
        assert (recorded.events, recorded.added) == (len(tape), len(tape) - 5)
        assert tuple(read_tape_file(tmp_path / "run.tape")) == tape

    ground.tell(story)


def test_a_long_tape_is_recorded_while_it_grows(ground: Ground, tmp_path: Path) -> None:
    async def story(there: Record) -> None:
        events = [opened(there.run), *(round_opened(number) for number in range(1, 700))]
        tape, stop = tape_of(events, there.run), asyncio.Event()
        follower = asyncio.create_task(
            record_following(there.tape, tmp_path / "run.tape", stop, Voice(silent))
        )
        for start in range(0, len(tape), BATCH_MAX):
            await there.tape.append(tape[start : start + BATCH_MAX])
        stop.set()
        assert (await follower).events == len(tape)
        assert tuple(read_tape_file(tmp_path / "run.tape")) == tape

    ground.tell(story)


def test_a_killed_recorder_loses_only_its_tail_and_is_continued(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    run, path = new_run(), tmp_path / "run.tape"
    tape = list(tape_of(one_of_each(), run))
    unclosed = tape[:-2]
    write_live(nats_server.url, run, unclosed[:8])
    with recorder(nats_server.url, run, path) as process:
        wait_for(path, 8)
        process.kill()

    write_live(nats_server.url, run, unclosed[8:])
    with recorder(nats_server.url, run, path) as process:
        wait_for(path, len(unclosed))
        process.send_signal(signal.SIGTERM)
        told, said = process.communicate(timeout=LIMIT_SECONDS)

    assert process.returncode == 0, said
    assert json.loads(told)["events"] == len(unclosed)
    assert list(read_tape_file(path)) == unclosed


def test_a_recorder_ends_by_itself_after_the_run_is_closed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    run, path = new_run(), tmp_path / "run.tape"
    tape = list(tape_of(one_of_each(), run))
    write_live(nats_server.url, run, tape)

    with recorder(nats_server.url, run, path) as process:
        told, said = process.communicate(timeout=LIMIT_SECONDS)

    assert (process.returncode, said) == (0, "")
    assert json.loads(told)["events"] == len(tape)
    assert list(read_tape_file(path)) == tape


def test_a_live_run_is_shown_and_proved_like_its_file(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=2, name=new_run()).play()
    write_live(nats_server.url, run.name, run.tape)
    (tmp_path / "run.toml").write_text(
        f'[run]\nname = "{run.name}"\n'
        f'[here]\nnats = "{nats_server.url}"\nstore = "{run.store.url}"\n'
    )

    for text in (f"{nats_server.url}/{run.name}", str(tmp_path), str(tmp_path / "run.toml")):
        place = find_place(text)
        assert (place.url, place.path) == (nats_server.url, None)
        assert list(replay.open_tape(text)) == run.tape
        proof = verify_place(place, 2, lambda done, total: None)
        assert proof.ok and proof.events == len(run.tape)
        state, whole = (replay.state_at(text, from_start=each) for each in (False, True))
        assert (state.position, state.digest) == (len(run.tape), whole.digest)
        assert state.begun.snapshot > whole.begun.snapshot == 0
        _check_by_position(place.records(), run)


def _check_by_position(records: Records, run: RealRun) -> None:
    """The tape is read from anywhere, and its states are folded from snapshots."""
    merges = [each for each in run.tape if isinstance(each.event, FragmentMerged)]
    assert records.last == len(run.tape)
    assert list(records.read(7)) == run.tape[7:]
    assert list(records.back(FragmentMerged.kind, records.last)) == merges[::-1]
    records.close()


def test_a_server_that_holds_another_run_of_this_name_is_passed_over(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=1, name=new_run()).play()
    run.save_tape(tmp_path / "run.tape")
    write_live(nats_server.url, run.name, list(tape_of((opened(run.name),), run.name)))
    (tmp_path / "run.toml").write_text(
        f'[run]\nname = "{run.name}"\n'
        f'[here]\nnats = "{nats_server.url}"\nstore = "{run.store.url}"\n'
    )

    place = find_place(tmp_path)

    assert place.path == tmp_path / "run.tape"
    assert "another run named" in place.note


def test_a_run_that_the_server_does_not_hold_is_told(nats_server: NatsServer) -> None:
    with pytest.raises(StreamMissing):
        next(replay.open_tape(f"{nats_server.url}/{new_run()}"))
    with pytest.raises(PlaceUnknown):
        next(replay.open_tape(nats_server.url))


def test_a_generator_of_envelopes_may_be_left_half_way(nats_server: NatsServer) -> None:
    run = new_run()
    write_live(nats_server.url, run, list(tape_of(one_of_each(), run)))

    envelopes = replay.open_tape(f"{nats_server.url}/{run}")
    assert next(envelopes).position == 1
    envelopes.close()

    async def under_a_loop() -> int:
        return sum(1 for _ in replay.open_tape(f"{nats_server.url}/{run}"))

    assert asyncio.run(under_a_loop()) == len(one_of_each())
