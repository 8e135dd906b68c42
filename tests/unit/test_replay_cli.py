"""The command `replay`: exit codes, JSON, and one clear line when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from decodiloco.store.open_store import open_store
from tests.real_run import RealRun


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    run = RealRun(open_store((folder / "store").as_uri()), steps=3).play()
    return run.save_tape(folder / "run.tape")


def replay(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "replay.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    return json.loads(done.stdout.splitlines()[-1])


def test_a_sound_run_exits_with_zero_and_tells_it_in_json(tape: Path) -> None:
    done = replay("verify", tape, "--json", "--threads", 2)

    assert (done.returncode, done.stderr) == (0, "")
    told = last_json(done)
    assert list(told) == [
        *("ok", "events", "merges", "merges_checked", "bytes_checked", "first_difference")
    ]
    assert told["ok"] is True and told["merges_checked"] == told["merges"]


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1"},
        {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
        {"ATEN_CPU_CAPABILITY": "default"},
    ],
    ids=lambda environment: "-".join(environment),
)
def test_the_proof_is_the_same_on_any_processor_and_order_of_hashes(
    tape: Path, environment: dict[str, str]
) -> None:
    here, elsewhere = replay("verify", tape), replay("verify", tape, **environment)

    assert (elsewhere.returncode, elsewhere.stdout) == (0, here.stdout)
    told = [replay("state", tape, "--step", 2, "--json", **each) for each in ({}, environment)]
    assert told[0].stdout == told[1].stdout


def test_a_difference_exits_with_one_and_names_the_blob(tape: Path) -> None:
    path = next(path for path in sorted(tape.parent.rglob("store/**/f0/1-*")))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    done = replay("verify", tape, "--json")
    path.write_bytes(whole)

    assert done.returncode == 1
    told = last_json(done)
    assert told["ok"] is False
    assert path.name in str(told["first_difference"])
    assert "restore it" in done.stdout


def test_a_broken_tape_is_shown_as_far_as_it_reads_and_exits_with_one(
    tape: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "run.tape"
    broken.write_bytes(tape.read_bytes()[:-1])

    done = replay("show", broken)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert "leaves: finished" in done.stdout.splitlines()[-1]


def test_a_state_is_told_in_json_and_written_to_a_file(tape: Path, tmp_path: Path) -> None:
    done = replay("state", tape, "--step", 2, "-o", tmp_path / "m.safetensors", "--json")

    assert done.returncode == 0
    assert list(last_json(done)) == ["position", "step", "tokens", "versions", "digest"]
    assert last_json(done)["step"] == 2
    assert (tmp_path / "m.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (("show", "/nowhere"), 2, "/nowhere: there is no such file or folder"),
        (("verify", "nats://127.0.0.1:9/demo"), 3, "127.0.0.1:9"),
        (("verify", "nats://127.0.0.1:9"), 2, "nats://host:port/run"),
        (("record", "/nowhere", "-o", "x.tape"), 2, "a live run is"),
        (("state", "TAPE", "--step", 99), 2, "step 99 is not on this tape"),
        (("show", "TAPE", "--learner", "zoe"), 2, "known: a, b, c"),
        (("verify", "TAPE", "--store", "ftp://x"), 2, "ftp://x"),
        (("verify", "TAPE", "--store", "file:///nowhere"), 1, "not in file:///nowhere"),
        (("state", "TAPE", "-o", "/nowhere/m.safetensors"), 3, "/nowhere/m.safetensors"),
    ],
)
def test_each_mistake_has_its_exit_code_and_one_line(
    tape: Path, arguments: tuple[object, ...], exit_code: int, told: str
) -> None:
    done = replay(*(tape if each == "TAPE" else each for each in arguments))

    assert done.returncode == exit_code
    assert told in done.stderr + done.stdout
    assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [(), ("record",), ("show",), ("state",), ("verify",)])
def test_help_ends_with_two_examples(command: tuple[str, ...]) -> None:
    done = replay(*command, "--help")

    assert done.returncode == 0
    head, *examples = done.stdout.rstrip().splitlines()[-3:]
    assert head.strip() == "Examples:"
    assert all(line.strip().startswith("replay ") for line in examples)


def test_help_answers_without_loading_what_is_heavy() -> None:
    code = (
        "import sys, replay.cli\n"
        "print(sorted({'torch', 'numpy', 'nats', 's3fs', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_reader_that_has_seen_enough_is_no_failure(tape: Path) -> None:
    command = f"{sys.executable} -m replay.cli show {tape} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
