"""A finished demo trained again by its command: real text, a real store, a real tape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIMIT_SECONDS = 120.0
TEXT = Path(json.__file__).parent

pytestmark = pytest.mark.timeout(280)


def retrain(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "replay.cli", "retrain", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


def told(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def test_every_delta_of_a_finished_demo_is_made_again_bit_for_bit(finished_demo: Path) -> None:
    code, out, err = retrain(str(finished_demo), "--json")

    found = told(out)
    assert (code, found["ok"]) == (0, True), err
    assert found["fingerprint"] == {"same": True, "differs": []}
    assert found["identical"] == found["deltas"] > 24
    assert sorted(one["learner"] for one in found["learners"]) == ["a", "b"]
    for kind in ("merges", "checkpoints"):
        assert found[kind]["identical"] == found[kind]["compared"] > 0
    assert found["first_difference"] is None
    assert found["loss_last"] < found["loss_first"]


@pytest.mark.long
def test_one_learner_is_trained_again_as_far_as_asked(finished_demo: Path) -> None:
    code, out, err = retrain(str(finished_demo), "--learner", "b", "--until", "60", "--json")

    found = told(out)
    assert (code, found["events"]) == (0, 60), err
    assert {one["learner"] for one in found["learners"]} == {"b"}
    assert found["identical"] == found["deltas"] > 0


@pytest.mark.long
def test_what_cannot_be_meant_is_refused(finished_demo: Path) -> None:
    code, _, err = retrain(str(finished_demo), "--learner", "z")
    assert (code, "no learner z on this tape; there are a, b" in err) == (2, True)

    code, _, err = retrain(str(finished_demo), "--data", str(TEXT.parent / "email" / "*.py"))
    assert (code, "this is not the text of the run" in err) == (2, True)
