"""Invariants over a recorded run: all hold for a sound one, one is named for a spoilt one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from decodiloco.store.open_store import open_store
from replay import cli
from replay.errors import InvariantBroken
from replay.invariants import Invariants
from replay.invariants.of_place import check_place
from replay.place import find_place
from replay.progress import silently
from streams.events import FragmentMerged, LearnerJoined, WindowClosed
from tests.real_run import RealRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RealRun, Path]:
    folder = tmp_path_factory.mktemp("run")
    (folder / "store").mkdir()
    real = RealRun(open_store((folder / "store").as_uri())).play()
    return real, real.save_tape(folder / "run.tape")


def test_every_invariant_of_facts_and_bytes_is_checked_on_a_recorded_run(
    run: tuple[RealRun, Path],
) -> None:
    invariants, broken = check_place(find_place(run[1]), silently)
    assert broken is None
    unchecked = {one.name for one in invariants.every if not one.checked}
    assert unchecked == {
        "no machine stumbles", "acknowledged stands", "recording goes on", "same bytes from all",
        "goes on",
    }  # fmt: skip


def test_the_command_names_each_invariant_and_how_often_it_was_checked(
    run: tuple[RealRun, Path],
) -> None:
    told = CliRunner().invoke(cli.app, ["verify", str(run[1]), "--invariants", "--json"])
    assert told.exit_code == 0, told.output
    last = json.loads(told.stdout.splitlines()[-1])
    assert last["ok"] and last["invariants"]["one chain"] == 3 * last["events"]
    assert "at least K: A window closes when K learners have answered" in told.stdout


SPOILT = {
    "versions by one": (FragmentMerged, {"version": 9}),
    "window by position": (WindowClosed, {"offers": ()}),
    "lives in order": (LearnerJoined, {"slot": 5}),
    "judged once": (FragmentMerged, {"contributions": ()}),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_fact_that_cannot_be_is_told_by_the_invariant_that_it_breaks(
    run: tuple[RealRun, Path], name: str
) -> None:
    real, (kind, changes) = run[0], SPOILT[name]
    spoilt = next(e for e in real.tape if isinstance(e.event, kind))
    invariants = Invariants(real.opening)
    for envelope in real.tape[: spoilt.position - 1]:
        invariants.tell(envelope)
    one = next(one for one in invariants.every if one.name == name)
    with pytest.raises(InvariantBroken) as broken:
        one.tell(invariants.ledger, replace(spoilt, event=spoilt.event.model_copy(update=changes)))
    assert (broken.value.invariant, broken.value.position) == (name, spoilt.position)
