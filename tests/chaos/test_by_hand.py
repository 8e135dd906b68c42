"""A run by hand from several terminals, on a NATS server that somebody else configured.

Two syncers, two learners, an evaluator, and a person who looks, closes and replays. Then the
same with what goes wrong around it: no syncer yet, another config, a server that dies.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.hands import Server, Terminals, terminals, their_server, until

pytestmark = pytest.mark.timeout(480)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with their_server(tmp_path, jetstream=True) as server:
        yield server


@pytest.fixture
def hands(tmp_path: Path, server: Server) -> Iterator[Terminals]:
    with terminals(tmp_path, server.url, f"file://{tmp_path}/store") as hands:
        yield hands


@pytest.mark.long
def test_a_run_by_hand_is_opened_led_closed_and_proved(hands: Terminals, server: Server) -> None:
    assert hands.types("open", "--config", hands.config)[:2] == (
        0,
        "run hand is open; learners may join\n",
    )
    code, out, _ = hands.types("status", hands.config)
    assert (code, "nobody leads; start one" in out, "2 learners have joined; 0 have" in out) == (
        0,
        True,
        True,
    )

    a = hands.start("learner", "a")
    a.says("waits for the syncer")
    a.says("start one with `decodiloco syncer")

    first = hands.start("syncer", "syncer-1")
    first.says("took over")
    second = hands.start("syncer", "syncer-2")
    b = hands.start("learner", "b")
    evaluator = hands.start("evaluator", "evaluator")
    evaluator.says('"step": 2')
    second.says("standing by")

    first.process.kill()
    second.says("took over")
    at = hands.status()["step"]
    until(lambda: hands.status()["step"] > at, "the standby merges")
    assert hands.types("doctor", "--config", hands.config)[0] == 0

    code, out, _ = hands.types("close", hands.config)
    assert (code, out.startswith("run hand: closing (asked) since position")) == (0, True)
    assert [each.ends() for each in (a, b, second, evaluator)] == [0, 0, 0, 0]
    assert ["finished" in each.log() for each in (a, b)] == [True, True]
    report = hands.status()
    assert [learner["state"] for learner in report["learners"]] == ["left", "left"]
    assert (report["phase"], report["leader"]) == ("closed", "syncer-2")

    code, out, _ = hands.types("close", hands.config)
    assert (code, "already" in out) == (0, True)
    assert_late_comers_end_well(hands)
    assert_replayed(hands, server)


def assert_late_comers_end_well(hands: Terminals) -> None:
    """Who comes to a closed run: a learner takes the last model, the others have nothing to do."""
    late = hands.start("learner", "late")
    others = hands.start("syncer", "late"), hands.start("evaluator", "late")
    assert [each.ends() for each in (late, *others)] == [0, 0, 0], late.log()
    assert "finished" in late.log()


def assert_replayed(hands: Terminals, server: Server) -> None:
    """The live run by its URL, and its recorded file, tell the same."""
    url, tape = f"{server.url}/hand", str(hands.folder / "hand.tape")
    assert hands.replay("record", url, "-o", tape)[0] == 0
    shown = [hands.replay("show", place)[1] for place in (url, tape)]
    assert shown[0] == shown[1]
    states = [hands.replay("state", place, "--step", "2", "--json")[1] for place in (url, tape)]
    assert json.loads(states[0]) == json.loads(states[1])
    for place in (url, tape):
        code, out, err = hands.replay("verify", place, "--json")
        assert (code, json.loads(out.splitlines()[-1])["ok"]) == (0, True), err


@pytest.mark.long
def test_a_run_that_is_open_keeps_its_config(hands: Terminals) -> None:
    hands.types("open", "--config", hands.config)
    for role in ("open", "syncer", "learner", "evaluator"):
        id_ = () if role == "open" else ("--id", "x")
        code, out, err = hands.types(role, "--config", hands.config, *id_, "--set", "outer.lr=0.1")
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert ("hand" in err and "config" in err) or "run.outer.lr is 0.1 here" in err
    code, _, err = hands.types("open", "--config", hands.config)
    assert (code, err) == (3, "decodiloco: run hand is open already; learners may join it\n")


@pytest.mark.long
def test_a_newer_life_of_a_learner_ends_the_older_one(hands: Terminals) -> None:
    hands.types("open", "--config", hands.config)
    hands.start("syncer", "syncer-1")
    older = hands.start("learner", "a")
    older.says('"training"')
    newer = hands.start("learner", "a")
    newer.says('"training"')
    assert older.ends() == 3
    assert "a newer life of learner a joined at position" in older.log()
    assert "Traceback" not in older.log()
    newer.process.terminate()
    assert newer.ends() == 0
    assert "the same command joins again" in newer.log()


@pytest.mark.long
def test_learners_train_on_while_their_nats_server_is_dead(
    hands: Terminals, server: Server
) -> None:
    hands.types("open", "--config", hands.config)
    syncer, evaluator = hands.start("syncer", "syncer-1"), hands.start("evaluator", "evaluator")
    a, b = hands.start("learner", "a"), hands.start("learner", "b")
    evaluator.says('"step": 2')
    server.kill()
    a.says("waits for the")
    for each in (a, b, syncer, evaluator):
        assert each.process.poll() is None, each.log()
    code, out, err = hands.types("status", hands.config)
    assert (code, out, len(err.splitlines())) == (3, "", 1), err
    server.start()
    a.says("answers again")
    at = hands.status()["step"]
    until(lambda: hands.status()["step"] > at, "merging goes on")
    assert hands.types("close", hands.config)[0] == 0
    assert [each.ends() for each in (a, b, syncer, evaluator)] == [0, 0, 0, 0]
    assert hands.replay("verify", hands.config)[0] == 0


@pytest.mark.long
def test_an_evaluator_that_comes_late_is_heard_by_a_syncer_that_comes_later(
    hands: Terminals,
) -> None:
    hands.types("open", "--config", hands.config)
    syncer = hands.start("syncer", "syncer-1")
    a, b = hands.start("learner", "a"), hands.start("learner", "b")
    until(lambda: hands.status()["step"] > 2, "something is merged")
    hands.types("close", hands.config)
    assert [each.ends() for each in (a, b, syncer)] == [0, 0, 0]
    evaluator = hands.start("evaluator", "evaluator")
    evaluator.says("evaluated")
    syncer = hands.start("syncer", "syncer-2")
    assert [evaluator.ends(), syncer.ends()] == [0, 0], evaluator.log()
    report = hands.status()
    assert report["loss_step"] == report["step"]


def test_a_server_without_jetstream_is_named(tmp_path: Path) -> None:
    with (
        their_server(tmp_path, jetstream=False) as plain,
        terminals(tmp_path, plain.url, f"file://{tmp_path}/store") as hands,
    ):
        for words in (
            ("open", "--config", hands.config),
            ("syncer", "--config", hands.config, "--id", "s"),
            ("status", hands.config),
            ("demo", "--nats", plain.url, "--dir", str(tmp_path / "demo")),
        ):
            code, _, err = hands.types(*words)
            assert (code, len(err.splitlines()), "start nats-server with -js" in err) == (
                3,
                1,
                True,
            ), err
        assert not (tmp_path / "demo" / "run.toml").exists()
        code, out, _ = hands.types("doctor", "--config", hands.config)
        assert (code, "FAILED  server: a NATS server answers, but no JetStream" in out) == (
            3,
            True,
        )


def test_a_tape_that_is_left_half_read_does_not_hold_up_the_end(hands: Terminals) -> None:
    """A reader in a cycle is closed when the interpreter ends, and no thread runs any more."""
    hands.types("open", "--config", hands.config)
    script = (
        "import sys, replay\n"
        "class Knot: pass\n"
        "knot = Knot()\n"
        "knot.itself, knot.records = knot, replay.open_tape(sys.argv[1])\n"
        "print(next(knot.records).position)\n"
        "del knot\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, hands.config], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
