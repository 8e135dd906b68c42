"""The command `replay diff` on tape files: broken ones, unfinished ones, and what they name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from decodiloco.store.open_store import open_store
from replay.world.campaign import keep, play
from streams.framing import SEAL_BYTES
from tests.real_run import RealRun

PROBE = (
    "import sys; from replay.cli import main\n"
    "try: main()\n"
    "except SystemExit as left: print(left.code)\n"
    "print('torch' in sys.modules)\n"
)


def played(folder: Path, name: str = "real", steps: int = 4) -> Path:
    folder.mkdir()
    run = RealRun(open_store((folder / "store").as_uri()), steps=steps, name=name).play()
    return run.save_tape(folder / "run.tape")


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("diff") / "one")


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("diff") / "two", steps=8)


def diff(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "replay.cli", "diff", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def copied(tape: Path, folder: Path) -> Path:
    """The run in another folder, with blobs of its own."""
    shutil.copytree(tape.parent, folder)
    return folder / tape.name


def test_a_tape_agrees_with_its_copy_also_in_bytes_and_without_torch(
    tape: Path, tmp_path: Path
) -> None:
    copy = copied(tape, tmp_path / "copy")
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "diff", str(tape), str(copy), "--bytes", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    *lines, told, code, torch = done.stdout.splitlines()
    assert (code, torch, done.stderr) == ("0", "False", "")
    assert "and end there, both of them" in lines
    found = json.loads(told)
    assert (found["agrees"], found["same_run"], found["parting"]) == (True, True, None)
    assert found["bytes"]["blobs"] > 20 and found["bytes"]["differ"] == 0


def test_a_recording_without_its_seal_agrees_as_far_as_it_goes(tape: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.tape"
    part.write_bytes(tape.read_bytes()[: -SEAL_BYTES - 100])

    done = diff(tape, part)

    assert done.returncode == 0, done.stdout
    assert "A goes on for 1 fact more" in done.stdout
    assert "part.tape: no seal yet" in done.stderr


def test_a_spoilt_byte_of_a_tape_is_a_parting_and_breaks_the_chain_after_it(
    tape: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.tape"
    payload = bytearray(tape.read_bytes())
    payload[len(payload) // 2] ^= 1
    broken.write_bytes(payload)

    done = diff(tape, broken, "--json")

    assert done.returncode == 1
    told = json.loads(done.stdout.splitlines()[-1])
    at = told["parting"]["position"]
    assert f"they part at position {at}" in done.stdout
    assert f"BROKEN: B cannot be read further: the tape breaks at position {at + 1}" in done.stdout
    assert (told["agrees"], told["broken"][0]) == (False, None)


def test_a_record_that_cannot_be_read_is_no_agreement_though_nothing_contradicts(
    tape: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.tape"
    payload = bytearray(tape.read_bytes())
    payload[payload.rindex(b"fragment_merged")] ^= 1
    broken.write_bytes(payload)

    done = diff(tape, broken, "--json")

    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["agrees"], told["parting"]) == (1, False, None)
    assert "BROKEN: B cannot be read further: the tape breaks at position" in done.stdout


def test_a_tape_cut_in_its_header_or_first_record_is_refused(tape: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tape"
    for size in (10, 100):
        cut.write_bytes(tape.read_bytes()[:size])
        done = diff(tape, cut)
        assert (done.returncode in (1, 2), len(done.stderr.splitlines())) == (True, 1), done.stderr


def test_two_runs_of_one_model_differ_in_a_named_setting(tape: Path, longer: Path) -> None:
    done = diff(tape, longer, "--bytes", "--json", "--merges", 1)

    assert done.returncode == 1
    assert "    run.end.steps: 4 -> 8" in done.stdout
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["same_run"], told["agrees"]) == (False, False)
    assert told["opening"][0] == {"path": "run.end.steps", "a": "4", "b": "8"}
    assert told["agreed_position"] > 10


def test_two_simulated_seeds_part_in_named_elements_of_their_merges(tmp_path: Path) -> None:
    places = []
    for seed in (3, 4):
        world = play(seed, merges=20)
        assert world.play().broken is None
        places.append(keep(world, tmp_path / str(seed)))

    done = diff(*places, "--bytes", "--merges", 1)

    assert done.returncode == 1
    assert re.search(r"^they part at position \d$", done.stdout, re.MULTILINE)
    *_, count, unlike = done.stdout.splitlines()
    assert count.startswith("1 blobs compared")
    assert re.match(
        r"    f\d v1 parameters: part\d\.\w+\[\d+\] is the first that differs, ", unlike
    )


def test_a_spoilt_element_of_a_copy_is_named_with_its_tensor(tape: Path, tmp_path: Path) -> None:
    copy = copied(tape, tmp_path / "copy")
    path = next(path for path in sorted(copy.parent.rglob("store/**/f1/2-*")))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 0x40]))

    done = diff(tape, copy, "--bytes")

    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("    ")]
    assert path.name in line
    assert "layer1.weight[119] is the first that differs" in line
    assert "|A - B| / |A| = " in line
    assert line.endswith("; A's is what the tape names, B's is not")


def test_a_broken_tape_with_a_store_of_its_own_is_compared_as_far_as_it_can_be_read(
    tape: Path, tmp_path: Path
) -> None:
    broken = copied(tape, tmp_path / "broken")
    payload = bytearray(tape.read_bytes())
    payload[payload.rindex(b"fragment_merged")] ^= 1
    broken.write_bytes(payload)

    done = diff(tape, broken, "--bytes", "--json")

    assert done.returncode == 1
    assert "BROKEN: B cannot be read further: the tape breaks at position" in done.stdout
    told = json.loads(done.stdout.splitlines()[-1])["bytes"]
    assert (told["blobs"] > 20, told["differ"]) == (True, 0)


def test_a_missing_blob_and_one_of_another_size_are_named(tape: Path, tmp_path: Path) -> None:
    copy = copied(tape, tmp_path / "copy")
    first, second, third = sorted(copy.parent.rglob("store/**/outer/f0/*"))[:3]
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(b"\xff" * len(third.read_bytes()))

    done = diff(copy, tape, "--bytes", "--json")

    unlike = {
        Path(each["key"]).name: each["what"]
        for each in json.loads(done.stdout.splitlines()[-1])["bytes"]["unlike"]
    }
    assert unlike[first.name] == "only B has it"
    assert "bytes in A," in unlike[second.name]
    assert unlike[third.name].endswith("; B's is what the tape names, A's is not")


def test_a_spoilt_report_is_told_by_its_byte_and_whose_it_is(tape: Path, tmp_path: Path) -> None:
    copy = copied(tape, tmp_path / "copy")
    path = next(path for path in sorted(copy.parent.rglob("store/**/report/*")))
    whole = path.read_bytes()
    path.write_bytes(whole[:7] + bytes([whole[7] ^ 1]) + whole[8:])

    done = diff(copy, tape, "--bytes")

    assert done.returncode == 1
    assert done.stdout.endswith(
        f"{path.name}: byte 7 is the first that differs; B's is what the tape names, A's is not\n"
    )


def test_without_any_blobs_the_facts_are_compared_all_the_same(tape: Path, tmp_path: Path) -> None:
    alone = shutil.copy(tape, tmp_path / "alone.tape")
    other = shutil.copy(tape, tmp_path / "other.tape")
    hidden = tape.parent / "store"
    hidden.rename(tape.parent / "hidden")
    try:
        done = diff(alone, other, "--bytes")
    finally:
        (tape.parent / "hidden").rename(hidden)

    assert done.returncode == 0, done.stderr
    assert "what its syncer knew cannot be told" in done.stderr
    assert "no bytes are compared: a store is not found" in done.stderr


def test_one_store_is_not_compared_with_itself(tape: Path) -> None:
    done = diff(tape, tape, "--bytes")

    assert done.returncode == 0
    assert "both tapes name one store" in done.stderr
    assert "0 blobs compared" in done.stdout


def test_a_reader_that_has_seen_enough_changes_no_verdict(tape: Path, longer: Path) -> None:
    left, stdout = os.pipe()
    os.close(left)
    for other, code in ((tape, 0), (longer, 1)):
        done = subprocess.run(
            [sys.executable, "-m", "replay.cli", "diff", str(tape), str(other), "--json"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (code, "")
    os.close(stdout)


@pytest.mark.parametrize("arguments", [("nowhere",), ("nowhere", "--json")])
def test_a_place_that_is_not_there_is_asked_wrongly(tape: Path, arguments: tuple[str, ...]) -> None:
    done = diff(tape, *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
