"""A whole demo with its bytes in a real S3 server, hurt on purpose, then proved from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from decodiloco.local.s3_server import S3Server
from tests.chaos.hands import TEXTS, processes_of

LIMIT_SECONDS = 240.0
STEPS = 40
KILLS = ("--kill", "learner@8", "--kill", "syncer@20")

pytestmark = pytest.mark.timeout(480)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server.start(tmp_path / "weed") as server:
        yield server


def run(
    module: str, *words: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, **environment},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.long
def test_a_demo_in_a_bucket_outlives_kills_and_is_proved_from_there(
    s3: S3Server, tmp_path: Path
) -> None:
    folder, keys = tmp_path / "demo", s3.variables()
    where = ("--store", f"{s3.url}/runs", "--store-endpoint", s3.endpoint)
    what = ("--dir", str(folder), "--learners", "2", "--steps", str(STEPS), "--data", str(TEXTS))
    done = run("decodiloco.cli", "demo", "--json", *what, *where, *KILLS, environment=keys)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)  # nothing but the summary stands on stdout
    assert [kill["step"] for kill in summary["struck"]] == [8, 20]
    assert (summary["kills"], summary["digests_equal"]) == (2, True)
    assert summary["merges"] >= STEPS
    assert not (folder / "store").exists()
    assert processes_of(folder) == []

    proof = run("replay.cli", "verify", str(folder), "--json", environment=keys)
    assert proof.returncode == 0, proof.stderr
    told = json.loads(proof.stdout.splitlines()[-1])
    assert (told["ok"], told["merges_checked"]) == (True, summary["merges"])
    assert_told_clearly(folder, keys)


def assert_told_clearly(folder: Path, keys: Mapping[str, str]) -> None:
    """Wrong keys are trouble outside, not a corrupt run; and nobody is there to be asked."""
    wrong = {**keys, "AWS_SECRET_ACCESS_KEY": "wrong"}
    denied = run("replay.cli", "verify", str(folder), environment=wrong)
    assert (denied.returncode, "access is denied" in denied.stderr) == (3, True)
    asked = run("decodiloco.cli", "status", str(folder), environment=keys)
    assert (asked.returncode, len(asked.stderr.splitlines())) == (3, 1)
    assert f"replay show {folder}" in asked.stderr


def test_a_bucket_that_cannot_be_used_binds_no_folder(s3: S3Server, tmp_path: Path) -> None:
    folder, keys = tmp_path / "demo", s3.variables()
    options = ("--dir", str(folder), "--store-endpoint", s3.endpoint, "--data", str(TEXTS))
    for store, environment, hint in (
        ("s3://nobody-made-this/runs", keys, "there is no such bucket"),
        (f"{s3.url}/runs", {**keys, "AWS_SECRET_ACCESS_KEY": "wrong"}, "access is denied"),
    ):
        done = run("decodiloco.cli", "demo", *options, "--store", store, environment=environment)
        told = done.stderr.splitlines()
        assert (done.returncode, len(told), hint in told[0]) == (3, 1, True), done.stderr
        assert told[0].startswith("decodiloco: open: blob ")
        assert not (folder / "run.toml").exists()
        assert processes_of(folder) == []
