"""Commands with a key, without one and with the wrong one: one line at once, exit code 3."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import decodiloco
from decodiloco import cli
from decodiloco.training.gpt import build
from replay import open_tape
from replay.cli import app as replay_app
from streams.errors import Trouble
from tests.contract.doors import Doors, shut

MODEL = {"layers": 1, "width": 8, "heads": 1, "context": 16}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with shut(
        tmp_path_factory.mktemp("doors"),
        {"name": "shut", "fragments": 2, "model": MODEL},
        mergers=("m1",),
    ) as made:
        operator = made.config_of("operator")
        decodiloco.open_run(operator, build(operator.run.model))
        asyncio.run(made.open())
        yield made


class Shell:
    """Types commands, and reads all that they say."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], doors: Doors
    ) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd
        self.config = doors.keys.parent / "run.toml"
        model = "{" + ", ".join(f"{name} = {value}" for name, value in MODEL.items()) + "}"
        self.config.write_text(
            f'[run]\nname = "shut"\nfragments = 2\nmodel = {model}\n'
            f'[here]\nnats = "{doors.server.url}"\nstore = "{doors.config.here.store}"\n'
        )

    def types(self, *words: str) -> tuple[int, str]:
        """Its exit code, and what it said; a failure is one line."""
        self._monkeypatch.setattr(sys, "argv", ["decodiloco", *words])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = self._capfd.readouterr()
        assert isinstance(ended.value.code, int)
        if ended.value.code:
            assert len(said.err.splitlines()) == 1, said.err
        return ended.value.code, said.out + said.err


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], doors: Doors
) -> Shell:
    return Shell(monkeypatch, capfd, doors)


def place(doors: Doors, name: str | None, user: str = "") -> str:
    query = f"?key={doors.key(name)}" if name else ""
    return f"{doors.server.url.replace('//', f'//{user}')}/shut{query}"


def test_a_command_without_a_key_says_which_setting_to_give(shell: Shell, doors: Doors) -> None:
    for words in (
        ("status", place(doors, None)),
        ("close", place(doors, None, "u:s3cret@")),
        ("open", "--config", str(shell.config)),
        ("status", str(shell.config)),
    ):
        code, said = shell.types(*words)
        assert code == 3 and "name the file of a key that it knows with here.nats_key" in said
        assert "s3cret" not in said


def test_a_process_with_anothers_key_does_not_start(shell: Shell, doors: Doors) -> None:
    for role, id_, key in (
        ("learner", "b", "learner-a"),
        ("syncer", "s1", "syncer-s2"),
        ("syncer", "s1", "viewer"),
        ("syncer", "s1", "merger-m1"),
        ("merger", "m1", "syncer-s1"),
        ("evaluator", "evaluator", "learner-a"),
        ("open", "", "syncer-s1"),
    ):
        ids = ("--id", id_) if id_ else ()
        setting = f"here.nats_key={doors.key(key)}"
        code, said = shell.types(role, "--config", str(shell.config), *ids, "--set", setting)
        assert code == 3 and f"may not use the key {doors.key(key)}" in said


def test_what_a_viewer_may_not_do_is_named(shell: Shell, doors: Doors) -> None:
    code, said = shell.types("close", place(doors, "viewer"))
    assert code == 3
    assert "may not publish to in.shut.home.operator.run_closing" in said
    assert f"{doors.key('viewer')} (that of viewer viewer of run shut)" in said


@pytest.mark.parametrize(
    "name", ["operator", "learner-a", "viewer", "syncer-s1", "evaluator", "merger-m1"]
)
def test_doctor_tries_what_its_key_is_for(shell: Shell, doors: Doors, name: str) -> None:
    setting = f"here.nats_key={doors.key(name)}"
    _, said = shell.types("doctor", "--config", str(shell.config), "--json", "--set", setting)
    (server,) = [one for one in json.loads(said)["checks"] if one["name"] == "server"]
    assert server["ok"], server
    merger = "knows us as merger m1 of run shut; it may hear syncers"
    assert (merger if name == "merger-m1" else "run shut is open") in server["told"]


def test_status_is_for_whoever_may_read(shell: Shell, doors: Doors, tmp_path: Path) -> None:
    code, said = shell.types("status", place(doors, "viewer"), "--json")
    assert code == 0 and json.loads(said)["run"] == "shut"
    shell.config.write_text(shell.config.read_text() + f'nats_key = "{doors.key("viewer")}"\n')
    code, said = shell.types("status", str(shell.config), "--json")
    assert code == 0 and json.loads(said)["run"] == "shut"


def test_replay_reads_with_a_viewers_key_and_without_one_says_so(
    doors: Doors, tmp_path: Path
) -> None:
    tape = tmp_path / "shut.tape"
    recorded = CliRunner().invoke(
        replay_app, ["record", place(doors, "viewer"), "-o", str(tape), "--json"]
    )
    assert recorded.exit_code == 0, recorded.output
    assert next(open_tape(tape)).event.kind == "run_opened"
    for live in (
        place(doors, None, "u:s3cret@"),
        place(doors, "viewer").replace("/shut", "/other"),
    ):
        with pytest.raises(Trouble) as refused:
            list(open_tape(live))
        assert refused.value.exit_code == 3 and "s3cret" not in str(refused.value)


def test_readers_are_made_by_the_operator(shell: Shell, doors: Doors) -> None:
    words = ("keys", str(shell.config), "--out", str(doors.keys), "--apply")
    assert shell.types(*words) == (0, "run shut has readers for a, b\n")
    code, said = shell.types(*words, "--set", f"here.nats_key={doors.key('learner-b')}")
    assert code == 3 and "learner_a: its key is" in said
    code, said = shell.types(*words, "--s3-policies")
    assert code == 2 and "--s3-policies only prints" in said


SECRET = "s3cret"
WITH_USER = f"nats://u:{SECRET}@127.0.0.1:1"


@pytest.mark.parametrize(
    "words",
    [
        ("status", f"{WITH_USER}/shut"),
        ("status", WITH_USER),
        ("status", f"nats://u:{SECRET}@[/shut"),
        ("close", f"{WITH_USER}/shut?password=x"),
        ("demo", "--nats", WITH_USER, "--dir", "{folder}/demo"),
        ("syncer", "--id", "s1", "--set", f"here.nats={WITH_USER}"),
        ("syncer", "--id", "s1", "--set", f"here.nats={WITH_USER}/path"),
        ("syncer", "--id", "s1", "--set", f"here.nats=['{WITH_USER}']"),
        ("syncer", "--id", "s1", "--set", f"here={WITH_USER}"),
        ("syncer", "--id", "s1", "--set", f"here.store=s3://k:{SECRET}@bucket/x"),
        ("syncer", "--id", "s1", "--set", f"here.store=s3://bucket/k:{SECRET}@x"),
        ("syncer", "--id", "s1", "--set", f"here.store=file://k:{SECRET}@h/x"),
        ("syncer", "--id", "s1", "--set", f"here.store=ftp://k:{SECRET}@h/x"),
        (
            *("syncer", "--id", "s1", "--set", "here.store=s3://bucket"),
            *("--set", f"here.store_endpoint=http://k:{SECRET}@h"),
        ),
    ],
)
def test_no_failure_tells_a_password_that_stands_in_an_address(
    shell: Shell, doors: Doors, tmp_path: Path, words: tuple[str, ...]
) -> None:
    config = ("--config", str(shell.config)) if words[0] == "syncer" else ()
    code, said = shell.types(*(word.format(folder=tmp_path) for word in words), *config)
    assert code in (2, 3)
    assert SECRET not in said
