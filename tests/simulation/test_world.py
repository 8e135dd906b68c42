"""The seeded world: whole runs under hardships, with a plain second fold looking on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replay import cli
from replay.place import find_place
from replay.progress import silently
from replay.verify import verify_place
from replay.world import branches
from replay.world.campaign import keep, play, run_campaign, told_of
from replay.world.plan import KINDS
from replay.world.world import World
from tests.plain_fold import PlainFold

MERGES = 40
HARD = (1, 5, 7, 10, 13, 19, 22, 25, 35, 93)  # seeds that between them draw every kind


@pytest.mark.parametrize("seed", HARD)
def test_a_hard_world_holds_every_invariant_and_comes_to_rest(seed: int) -> None:
    told = World(seed, MERGES, second=PlainFold).play()
    assert told.broken is None


def test_a_world_without_hardships_is_quiet_and_merges_most_of_what_is_trained() -> None:
    world = World(9, MERGES, lambda _: False, second=PlainFold)
    told = world.play()
    assert told.broken is None and told.hardships == ()
    assert not [name for name in told.branches if "killed" in name or "lost" in name]
    learners = world.invariants.state.learners.values()
    trained = sum(learner.tokens_trained for learner in learners)
    merged = sum(learner.fates(0)["merged"] for learner in learners)
    assert merged > trained / 2


def test_a_world_with_mergers_comes_to_what_they_are_there_to_try() -> None:
    world = World(57, MERGES, lambda hardship: KINDS[hardship.kind].of_mergers, second=PlainFold)
    told = world.play()
    assert told.broken is None and len(world.case.mergers) == 2
    wanted = {
        "a leader merges what a merger did not",
        "a merger is given up",
        "a merger merges",
        "a merger merges what is merged already",
        "an answer comes after the round is merged",
        "two mergers store the same",
    }
    assert wanted - set(told.branches) == set()


def test_a_world_without_mergers_is_struck_by_nothing_that_is_theirs() -> None:
    for seed in (1, 2, 4):
        world = World(seed, MERGES)
        assert world.case.mergers == ()
        assert not [one for one in world.hardships.plan if KINDS[one.kind].of_mergers]


CODE = (
    "from replay.world.campaign import told_of\n"
    f"for seed in {HARD}: print(told_of(seed, None, {MERGES}).tape_digest.hex())"
)


def test_the_hard_seeds_give_the_same_tapes_in_two_processes_with_other_hashes() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    first, second = (process.communicate()[0].split() for process in running)
    assert [process.returncode for process in running] == [0, 0]
    assert len(set(first)) == len(HARD) and first == second


def test_another_seed_gives_another_tape() -> None:
    first, second = (told_of(seed, (), 10).tape_digest for seed in (3, 4))
    assert first != second


def test_a_worlds_record_is_proved_by_replay(tmp_path: Path) -> None:
    kinds = [kind for kind in KINDS if not kind.startswith("store-")]  # else bytes are wrong
    world = play(35, kinds, MERGES)  # a seed that lets go of nothing, and has two mergers
    told = world.play()
    proof = verify_place(find_place(keep(world, tmp_path)), 1, silently)
    assert (proof.first_difference, proof.merges_checked) == (None, told.merges)


def test_the_hard_seeds_draw_every_kind_of_hardship() -> None:
    drawn = {hardship.kind for seed in HARD for hardship in World(seed, MERGES).hardships.plan}
    assert drawn == set(KINDS)
    assert {len(World(seed, MERGES).case.mergers) for seed in HARD} == {0, 1, 2}


def test_a_hardship_is_the_same_whatever_others_are_left_out() -> None:
    all_of_them = {one.name: one for one in World(5, MERGES).hardships.plan}
    chosen = World(5, MERGES, lambda one: one.kind == "cut-off").hardships.plan
    assert chosen and all(all_of_them[one.name] == one for one in chosen)


@pytest.mark.long
def test_a_campaign_that_never_took_a_rare_branch_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert branches.missed({}, branches.SEEDS_ENOUGH) == branches.declared()
    assert branches.missed({}, branches.SEEDS_ENOUGH - 1) == ()
    monkeypatch.setattr(branches, "SEEDS_ENOUGH", 1)
    told = CliRunner().invoke(cli.app, ["simulate", "--seed", "3", "--json"])
    found = json.loads(told.stdout.splitlines()[-1])
    assert (told.exit_code, found["ok"], found["failed"]) == (1, False, [])
    left = [branch for branch in branches.declared() if branch not in found["branches"]]
    assert found["never_taken"] == left != []
    assert f"NEVER TAKEN: {left[0]}" in told.stdout.splitlines()
    campaign = run_campaign(range(3, 4), (), tmp_path, 1, silently)
    assert campaign.ok and campaign.missed == ()


def test_the_command_prints_one_json_object_and_says_what_is_wrong_with_a_question() -> None:
    told = CliRunner().invoke(cli.app, ["simulate", "--seed", "3", "--hardships", "none", "--json"])
    assert told.exit_code == 0
    assert told.stdout.splitlines()[-1].startswith('{"ok": true, "seeds": 1, "failed": []')
    for words in (["--seed", "1", "--seeds", "1..2"], ["--seeds", "5..5"], ["--seed", "1"]):
        asked = ["simulate", *words, "--hardships", "rain"]
        assert CliRunner().invoke(cli.app, asked).exit_code == 1


def test_no_world_loads_torch() -> None:
    code = "import sys; import replay.world.campaign; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_a_long_campaign_holds_and_takes_every_rare_branch(first: int, tmp_path: Path) -> None:
    campaign = run_campaign(range(first, first + 100), None, tmp_path, 2, silently)
    assert [failed.command for failed in campaign.failed] == []
    assert campaign.missed == ()
