"""Invariants over a recorded run: all hold for a sound one, one is named for a spoilt one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from decodiloco.store.open_store import open_store
from decodiloco.syncer.state import State
from replay import cli
from replay.errors import InvariantBroken
from replay.invariants import Invariants, all_of_them
from replay.invariants.of_place import check_place
from replay.invariants.of_state import BoundedState
from replay.invariants.of_tokens import RefusalsTellWhy
from replay.place import find_place
from replay.progress import silently
from streams.events import FragmentMerged, LearnerJoined, WindowClosed
from tests.builders import refused
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
    assert tuple(map(type, invariants.every)) == all_of_them.every_invariant()
    unchecked = {one.name for one in invariants.every if not one.checked}
    assert unchecked == {
        "no machine stumbles", "acknowledged stands", "recording goes on", "same bytes from all",
        "goes on", "horizon keeps what is needed", "only below the horizon",
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


def test_a_refusal_of_one_that_never_joined_is_told(run: tuple[RealRun, Path]) -> None:
    invariants, one = Invariants(run[0].opening), replace(run[0].tape[1], event=refused("stranger"))
    with pytest.raises(InvariantBroken, match="stranger never joined"):
        RefusalsTellWhy().tell(invariants.ledger, one)


def test_a_state_in_which_something_piles_up_is_told(run: tuple[RealRun, Path]) -> None:
    state = Invariants(run[0].opening).state
    BoundedState().look(state)
    with pytest.raises(InvariantBroken, match="1000 untold superseded offers; at most 64"):
        BoundedState().look(replace(state, superseded=tuple(range(1000))))


def test_a_fact_that_the_fold_cannot_take_is_told_with_its_kind(
    run: tuple[RealRun, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumbles(*_: object) -> State:
        raise LookupError("no such round")

    invariants = Invariants(run[0].opening)
    monkeypatch.setattr(all_of_them, "fold", stumbles)
    with pytest.raises(InvariantBroken, match="run_opened: LookupError: no such round") as broken:
        invariants.tell(run[0].tape[0])
    assert broken.value.invariant == "facts follow"
