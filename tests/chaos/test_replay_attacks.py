"""The command `replay` in clumsy and in hostile hands: one clear line, the right exit code."""

from __future__ import annotations

import os
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from decodiloco.store.open_store import open_store
from replay.tape_file import MAGIC
from tests.chaos.tampering import Pieces
from tests.real_run import RealRun

MEMORY_BYTES_MAX = 2 * 1024**3
SECONDS_MAX = 30.0
NOBODY = "nats://127.0.0.1:9"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked")
    RealRun(open_store((folder / "store").as_uri()), steps=3).play().save_tape(folder / "run.tape")
    return folder


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    """A run folder of this test's own."""
    return shutil.copytree(sound, tmp_path / "run")


def replay(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command, killed when it takes more memory or time than any of these can need."""
    return subprocess.run(
        [sys.executable, "-m", "replay.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)
        ),
    )


def check_told(done: subprocess.CompletedProcess[str], exit_code: int, told: str) -> None:
    """It says what is wrong in one line of stderr, or as the proof's verdict."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert told in done.stdout + done.stderr
    assert done.stderr.count("\n") <= 1, done.stderr


def no_file(path: Path) -> None:
    path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def cut_in_its_magic(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: len(MAGIC) // 2])


def cut_in_its_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: len(MAGIC) + 9])


def long_header(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(MAGIC) + 2] + struct.pack(">I", 2**32 - 1) + data[22:])


def long_record(path: Path) -> None:
    whole = Pieces.of(path.read_bytes())
    first, second, *rest = whole.records
    second = struct.pack(">I", 2**31) + second[4:]
    path.write_bytes(replace(whole, records=(first, second, *rest)).joined())


def long_zeros(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.truncate()
    os.truncate(path, 256 * 1024**2)


@pytest.mark.parametrize(
    ("spoil", "exit_code", "told"),
    [
        (no_file, 2, "there is no such file or folder"),
        (empty, 1, "does not begin as a tape file does"),
        (folder, 2, "neither run.toml nor run.tape"),
        (pipe, 2, "neither a file nor a folder"),
        (loop, 2, "symbolic links"),
        (cut_in_its_magic, 1, "does not begin as a tape file does"),
        (cut_in_its_header, 1, "the header"),
        (long_header, 1, "the header"),
        (long_record, 1, "2147483648 bytes, which none has"),
        (long_zeros, 1, "the seal"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "show"])
def test_a_tape_that_is_none_is_told_at_once(
    run: Path, command: str, spoil: Callable[[Path], None], exit_code: int, told: str
) -> None:
    tape = run / "run.tape"
    spoil(tape)

    check_told(replay(command, tape), exit_code, told)


def test_a_tape_by_a_link_is_the_tape(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link.tape").symlink_to(run / "run.tape")
    (tmp_path / "linked").symlink_to(run)

    for place in (tmp_path / "link.tape", tmp_path / "linked"):
        check_told(replay("verify", place), 0, "agreed")


@pytest.mark.parametrize("spoil", [no_file, empty, folder, pipe, loop])
@pytest.mark.parametrize("blob", ["opening", "global/f0"])
def test_a_blob_that_is_none_is_named(run: Path, blob: str, spoil: Callable[[Path], None]) -> None:
    path = next(
        path for path in sorted(run.rglob("*")) if f"/{blob}" in f"{path}" and path.is_file()
    )
    spoil(path)

    done = replay("verify", run)

    exit_code = 3 if spoil is loop else 1  # a link that leads nowhere is the file system's trouble
    check_told(done, exit_code, str(path.relative_to(run / "store")))


def test_a_pipe_in_a_blobs_place_holds_no_state_up(run: Path) -> None:
    for path in (run / "store").rglob("global/*/*"):
        pipe(path)

    check_told(replay("state", run, "-o", run / "model"), 1, "is not in file://")


def test_a_tape_of_another_run_is_not_taken_for_this_one(run: Path) -> None:
    (run / "run.toml").write_text(
        f'[run]\nname = "other"\n[here]\nnats = "{NOBODY}"\nstore = "{(run / "store").as_uri()}"\n'
    )

    check_told(replay("verify", run), 2, "holds run real, but")
    tape = run / "run.tape"
    tape.write_bytes(tape.read_bytes().replace(b"real", b"reel", 1))
    check_told(replay("verify", run), 1, "breaks at position 1")


def test_a_store_that_was_moved_is_asked_for_and_taken(run: Path, sound: Path) -> None:
    elsewhere = (run / "store").rename(run.parent / "elsewhere")
    (run / "other.tape").write_bytes((run / "run.tape").read_bytes().replace(b"x", b"x"))
    nowhere = run.parent / "nowhere"

    check_told(replay("verify", run, "--store", nowhere.as_uri()), 1, f"not in {nowhere.as_uri()}")
    check_told(replay("verify", run, "--store", elsewhere.as_uri()), 0, "agreed")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (("state", "RUN", "--at", 10**24), 2, "is not on this tape"),
        (("state", "RUN", "--step", 10**9), 2, "which ends at position"),
        (("state", "RUN", "--fragment", 99, "--version", 0), 2, "with 3 fragments"),
        (("state", "RUN", "-o", "/dev/null"), 3, "this is no file"),
        (("state", "RUN", "-o", ""), 3, "this is no file"),
        (("show", "RUN", "--fragment", 99), 2, "known: 0 to 2"),
        (("verify", "x" * 300), 2, "name too long"),
        (("verify", "nats://[::1/x"), 2, "write a live run as nats://host:port/run"),
        (("verify", "nats://127.0.0.1:99999/x"), 2, "write a live run as nats://host"),
        (("verify", "RUN", "--store", "s3://[b/x"), 2, "is no bucket"),
        (
            ("verify", "RUN", "--store", "s3://bucket/x", "--store-endpoint", "http://[::1"),
            2,
            "use",
        ),
        (("verify", "RUN", "--store", "file:///etc/passwd"), 1, "not in file:///etc/passwd"),
        (("verify", "/dev/zero"), 2, "neither a file nor a folder"),
        (("record", "RUN", "-o", "x.tape"), 2, "a live run is"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(
    run: Path, arguments: tuple[object, ...], exit_code: int, told: str
) -> None:
    done = replay(*(run if each == "RUN" else each for each in arguments))

    check_told(done, exit_code, told) if told != "name too long" else check_long(done)


def check_long(done: subprocess.CompletedProcess[str]) -> None:
    check_told(done, 2, "ame too long")


@pytest.mark.parametrize(
    "arguments", [("--at", 0), ("--step", -1), ("--fragment", -1), ("--at", "three")]
)
def test_a_moment_that_is_no_number_is_a_question_asked_wrongly(
    run: Path, arguments: tuple[object, ...]
) -> None:
    done = replay("state", run, *arguments)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(arguments[0]) in done.stderr


def test_a_config_that_is_no_text_is_told(run: Path) -> None:
    (run / "run.toml").write_bytes(b"\xff\xfe\x00")

    check_told(replay("verify", run), 2, "not text in UTF-8")


def test_a_model_file_that_finds_no_room_leaves_nothing_behind(run: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512));"
        "from replay.cli import main; main()"
    )
    output = tmp_path / "full" / "model"
    done = subprocess.run(
        [sys.executable, "-c", code, "state", str(run), "-o", str(output)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    check_told(done, 3, f"model file {output}")
    assert list(output.parent.iterdir()) == []


def test_a_proof_for_a_script_is_json_even_when_the_header_is_broken(run: Path) -> None:
    empty(run / "run.tape")

    done = replay("verify", run, "--json")

    assert done.returncode == 1
    assert '"ok": false' in done.stdout and '"position": 1' in done.stdout


BOUND = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if os.geteuid() == 0 and libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
        sys.exit("root cannot be bound by permissions: " + os.strerror(ctypes.get_errno()))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Runs a command that permissions bind, also as root."""


@pytest.mark.parametrize(("place", "exit_code"), [("run.tape", 2), ("store", 2), (".", 2)])
def test_what_may_not_be_read_is_told(run: Path, place: str, exit_code: int) -> None:
    (run / place).chmod(0o000)

    done = subprocess.run(
        [sys.executable, "-c", BOUND, "-m", "replay.cli", "verify", str(run / "run.tape")],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    (run / place).chmod(0o755)

    check_told(done, exit_code, "Permission denied")
