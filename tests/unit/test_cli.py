"""The `decodiloco` command as a person meets it: help, mistakes, exit codes, one clear line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (
    "demo", "up", "open", "syncer", "merger", "learner", "evaluator", "close", "status", "doctor",
)  # fmt: skip
CONFIG = '[run]\nname = "trial"\n[here]\nnats = "nats://127.0.0.1:1"\nstore = "memory://trial"\n'


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "decodiloco.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )


def one_line(told: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr; a traceback or a second line is no clear message."""
    lines = told.stderr.strip().splitlines()
    assert "Traceback" not in told.stderr and len(lines) == 1, told.stderr
    return lines[0]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_ends_with_two_examples(command: str) -> None:
    told = run(command, "--help")
    assert told.returncode == 0
    lines = told.stdout.rstrip().splitlines()
    assert lines[-3].strip() == "Examples:"
    assert all(line.strip().startswith(f"decodiloco {command}") for line in lines[-2:])


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, decodiloco.cli\n"
        "print(sorted({'torch', 'nats', 'numpy', 'rich', 's3fs', 'pydantic'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == "[]"


def test_a_command_that_does_not_exist_is_asked_wrongly() -> None:
    told = run("statsu")
    assert (told.returncode, "status" in told.stderr) == (2, True)


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("outer.momentm=0.5", "did you mean momentum"),
        ("outer.lr=-1", "outer.lr"),
        ("nothing", "key=value"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(config: Path, setting: str, hint: str) -> None:
    told = run("syncer", "--config", str(config), "--id", "s", "--set", setting)
    assert (told.returncode, hint in one_line(told)) == (2, True)


def test_a_config_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = run("learner", "--config", str(tmp_path / "no.toml"), "--id", "a")
    assert told.returncode == 2
    assert "no.toml" in one_line(told)


def test_a_process_without_an_id_is_told_to_take_one(config: Path) -> None:
    told = run("syncer", "--config", str(config))
    assert (told.returncode, "--id" in one_line(told)) == (2, True)


def test_a_run_that_is_nowhere_never_falls_back_to_another(tmp_path: Path) -> None:
    for command in ("status", "close"):
        told = run(command, str(tmp_path / "nowhere"))
        assert (told.returncode, "no run is there" in one_line(told)) == (2, True)


@pytest.mark.parametrize("command", ["status", "close"])
def test_a_server_that_does_not_answer_is_trouble_outside(config: Path, command: str) -> None:
    told = run(command, str(config.parent))
    assert (told.returncode, "127.0.0.1:1" in one_line(told)) == (3, True)


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    told = run("status", str(tmp_path / "nowhere"), "--debug")
    assert told.returncode != 0
    assert "Traceback" in told.stderr


def test_an_unwritable_folder_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    told = run("demo", "--dir", str(tmp_path / "file" / "demo"))
    assert (told.returncode, "--dir" in one_line(told)) == (3, True)


def test_a_demo_with_a_server_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{probe.getsockname()[1]}"
        told = run("demo", "--dir", str(tmp_path / "demo"), "--nats", url)
    assert (told.returncode, url in one_line(told)) == (3, True)
    assert not (tmp_path / "demo").exists()


def test_a_kill_that_cannot_be_meant_is_refused_before_anything_starts(tmp_path: Path) -> None:
    told = run("demo", "--dir", str(tmp_path / "demo"), "--kill", "nobody@4")
    assert (told.returncode, "nobody@4" in one_line(told)) == (2, True)
    assert not (tmp_path / "demo" / "run.toml").exists()


def test_up_refuses_a_port_that_is_taken_by_something_else(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = CONFIG.replace(":1", f":{port}").replace("memory://", "file:///tmp/")
        (tmp_path / "run.toml").write_text(text)
        told = run("up", "--config", "run.toml", "--dir", "here", cwd=tmp_path)
    assert told.returncode in (2, 3)
    assert str(port) in one_line(told)


def test_doctor_says_what_failed_and_goes_on(config: Path) -> None:
    told = run("doctor", "--config", str(config))
    lines = told.stdout.splitlines()
    assert told.returncode == 3
    assert [line.split()[0] for line in lines[:4]] == ["ok", "ok", "FAILED", "ok"]
    assert "127.0.0.1:1" in lines[2]
