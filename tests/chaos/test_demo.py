"""The demo as a newcomer runs it: real processes, a real server, real kills. Short settings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from replay import open_tape
from streams.events import RoundOpened

LIMIT_SECONDS = 120.0
DEMO = ("-m", "decodiloco.cli", "demo", "--json", "--learners", "2")
KILLED = ("--steps", "80", "--kill", "learner@4", "--kill", "syncer@40")
CALM = ("--steps", "30", "--kill", "none")
FRAGMENTS = 6


def merges_at_end(steps: int) -> range:
    """A last pass over all fragments, after what rounds were open when the run began to close."""
    return range(steps + FRAGMENTS, steps + 2 * FRAGMENTS)


pytestmark = pytest.mark.timeout(280)


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    texts = Path(json.__file__).parent.parent / "*.py"  # enough not to learn it by heart
    return subprocess.Popen(
        [sys.executable, *DEMO, "--dir", str(folder), "--data", str(texts), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told_by(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        pytest.fail(f"the demo did not end:\n{err}")
    return process.returncode, out, err


def summary_of(out: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return summary


def replay(*arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "replay.cli", *arguments], capture_output=True, timeout=LIMIT_SECONDS
    ).returncode


def pids_in(folder: Path) -> list[int]:
    return [pid for _, pid, _ in json.loads((folder / "processes.json").read_text())]


def first_said(folder: Path, role: str) -> float:
    """When a process wrote the first line of its log, in seconds since 1970."""
    line = json.loads((folder / "logs" / f"{role}.log").read_text().splitlines()[0])
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def first_round(folder: Path) -> float:
    """When the first round was opened."""
    return next(
        envelope.time_seconds
        for envelope in open_tape(folder)
        if isinstance(envelope.event, RoundOpened)
    )


@pytest.mark.long
def test_a_demo_outlives_a_killed_learner_and_a_killed_syncer(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    code, out, err = told_by(demo(folder, *KILLED))
    assert code == 0, err
    summary = summary_of(out)
    assert summary["merges"] in merges_at_end(80)
    assert (summary["kills"], summary["learners"]) == (2, 2)
    assert summary["digests_equal"] is True
    assert summary["lives"] == {"a": 1, "b": 2}
    assert [kill["step"] for kill in summary["struck"]] == [4, 40]
    assert summary["takeover_seconds"] < 5.0
    assert all(n > 0 for outage in summary["outages"] for n in outage["learners_stepped"].values())
    assert summary["loss_last"] < summary["loss_first"]
    assert first_said(folder, "syncer-2") > first_round(folder)  # a start makes none wait for it
    assert replay("verify", str(folder)) == 0
    assert replay("retrain", str(folder)) == 0  # every delta, bit for bit, across both kills

    again = summary_of(told_by(demo(folder, *KILLED))[1])
    assert again == summary
    code, out, err = told_by(demo(folder, "--steps", "50"))
    assert (code, out) == (2, "")
    assert "run.end.steps: 80 there, 50 asked" in err


@pytest.mark.long
def test_a_demo_that_is_stopped_leaves_nothing_running_and_is_continued(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    first = demo(folder, *CALM)
    assert first.stderr is not None
    assert any("validation loss" in line for line in first.stderr)  # it trains by then
    running = pids_in(folder)
    first.send_signal(signal.SIGTERM)
    code, out, err = told_by(first)
    assert (code, out) == (130, "")
    assert "the same command continues the run" in err
    assert not [pid for pid in running if psutil.pid_exists(pid)]

    code, out, err = told_by(demo(folder, *CALM))
    assert code == 0, err
    assert "continuing run" in err
    summary = summary_of(out)
    assert summary["merges"] in merges_at_end(30)
    assert (summary["kills"], summary["digests_equal"]) == (0, True)
