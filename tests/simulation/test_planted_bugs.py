"""Each planted fault is caught by the invariant that is named, within so many seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.invariants.all_of_them import every_invariant
from replay.progress import silently
from replay.world import campaign
from replay.world.campaign import run_campaign
from tests.simulation.catching import catch, measured
from tests.simulation.planted_bugs import BUGS, planted

# Tripped by no planted fault: what they look at is asserted in the machine before it is written.
# tests/unit/test_invariants_of_a_run.py trips them by hand.
UNTRIPPED = {"versions by one", "facts follow", "bounded state", "refusals tell why"}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught_by_the_invariant_that_is_named(name: str) -> None:
    invariant, _ = catch(name, measured()[name])
    assert invariant == BUGS[name].invariant


def test_the_seeds_that_were_needed_are_written_down_for_each_bug() -> None:
    needed = measured()
    assert list(needed) == list(BUGS)
    assert [name for name in BUGS if not 1 <= needed[name] <= BUGS[name].seeds_max] == []


def test_all_invariants_but_a_few_are_tripped_by_a_planted_bug() -> None:
    names = {one.name for one in every_invariant()}
    assert names - {bug.invariant for bug in BUGS.values()} == UNTRIPPED


def test_a_planted_bug_is_gone_after_the_test() -> None:
    for bug in BUGS.values():
        before = [getattr(place, name) for place, name, _ in bug.changes()]
        with planted(bug):
            pass
        assert [getattr(place, name) for place, name, _ in bug.changes()] == before


@pytest.mark.long
def test_a_failing_seed_is_shrunk_to_what_it_needs_and_leaves_its_record(tmp_path: Path) -> None:
    with planted(BUGS["strange letter stops"]):
        found = run_campaign(range(5, 6), ("malformed", "churn"), tmp_path, 1, silently)
    (failed,) = found.failed
    assert failed.command.startswith("replay simulate --seed 5 --hardships malformed.")
    assert (len(failed.hardships or ()), failed.invariant) == (1, "no machine stumbles")
    assert sorted(path.name for path in Path(failed.folder).iterdir()) == ["run.tape", "store"]


def test_a_failing_seed_that_is_not_shrunk_is_played_again_as_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "SHRUNK_MAX", 0)
    with planted(BUGS["strange letter stops"]):
        found = run_campaign(range(5, 6), ("malformed", "churn"), tmp_path, 1, silently)
    (failed,) = found.failed
    assert failed.command == "replay simulate --seed 5 --hardships malformed,churn"
