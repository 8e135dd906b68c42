"""A synthetic tape in a folder, as the commands read it, and the command that writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from decodiloco.config import load_config
from decodiloco.errors import ConfigInvalid
from decodiloco.merge.model_digest import model_digest
from decodiloco.training.gpt import build
from replay.cli import app
from replay.errors import Unwritable
from replay.place import find_place
from replay.progress import silently
from replay.state import opened_by, read_opening, state_at
from replay.synthetic.cluster import Cluster
from replay.synthetic.clusters import Trial, heterogeneous, homogeneous, scavenging, study_trials
from replay.synthetic.records import synthetic_records
from replay.synthetic.writing import write_synthetic
from replay.verify import verify_place
from streams.errors import Failure

RUN = """
[run]
name = "synth"
fragments = 3
inner_steps = 6
learners_min = 2
[run.window]
step_seconds = 5.0
[run.model]
layers = 1
width = 16
heads = 2
context = 16
seed = 7
[run.training]
batch_sequences = 4
[run.end]
tokens = 3840
[here]
store = "memory://nowhere"
"""
CLUSTER = Cluster((5.0, 5.0))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(RUN, encoding="utf-8")
    return path


def replay(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def told(*arguments: str | Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(replay(*arguments, "--json").splitlines()[-1])
    return answer


def test_what_lies_in_the_folder_is_the_run_with_its_real_first_parameters(
    tmp_path: Path, config: Path
) -> None:
    run = load_config(config).run
    written = write_synthetic(tmp_path / "run", run, CLUSTER, seed=3)

    place = find_place(tmp_path / "run")
    envelopes = list(place.envelopes())
    store = place.open_store(opened_by(envelopes[0], place))
    opening = read_opening(store, opened_by(envelopes[0], place))
    store.close()
    assert opening.run == run
    assert [e.digest for e in envelopes] == [
        e.digest for e in synthetic_records(opening, CLUSTER, seed=3)
    ]
    assert written.events == len(envelopes) and written.digest == envelopes[-1].digest.hex()
    assert written.lives == 2 and 0.9 < written.goodput <= 1.05
    first = state_at(tmp_path / "run", position=1)
    parameters = first.parameters()
    first.close()
    live = {name: one.detach().numpy() for name, one in build(run.model).named_parameters()}
    mine = [(name, live[name]) for name in sorted(parameters)]
    assert model_digest(opening.layout, parameters.items()) == model_digest(opening.layout, mine)


def test_the_commands_read_it_and_say_that_it_is_synthetic(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "run"
    write_synthetic(folder, load_config(config).run, CLUSTER, seed=3)

    assert "leaves: finished" in replay("show", folder)
    assert told("state", folder)["tokens"] >= 3840
    proof = told("verify", folder, "--invariants")
    assert proof["ok"] and proof["synthetic"] and proof["merges_checked"] == 0
    assert proof["merges"] > 0 and proof["bytes_checked"] > 0
    assert "merged from these bytes" not in proof["invariants"]
    assert proof["invariants"]["fates add up"] > 0
    assert "SYNTHETIC" in replay("verify", folder)


def test_a_lost_opening_is_still_found_out(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "run"
    write_synthetic(folder, load_config(config).run, CLUSTER, seed=3)
    fragment = next((folder / "store" / "synth" / "global" / "f1").iterdir())
    fragment.unlink()
    assert not verify_place(find_place(folder), 1, silently).ok


def test_a_tape_is_never_written_over(tmp_path: Path, config: Path) -> None:
    run = load_config(config).run
    write_synthetic(tmp_path / "run", run, CLUSTER, seed=3)
    with pytest.raises(ConfigInvalid, match="name another folder"):
        write_synthetic(tmp_path / "run", run, CLUSTER, seed=3)
    with pytest.raises(Unwritable):
        write_synthetic(config / "run", run, CLUSTER, seed=3)


def test_the_command_writes_the_tape_of_the_cluster_that_it_is_asked_for(
    tmp_path: Path, config: Path
) -> None:
    asked = ("--learners", "2", "--chips", "600000", "--run", config)
    plain = told("goodput", *asked, "--tape", tmp_path / "a")
    again = told("goodput", *asked, "--tape", tmp_path / "b")
    other = told("goodput", *asked, "--tape", tmp_path / "c", "--seed", "1")
    assert plain["digest"] == again["digest"] != other["digest"]
    assert plain["inner_steps"] == 30 and plain["big_steps"] == 1
    assert plain["tokens"] >= 3840 and 50 < plain["goodput"] < 101

    more = told("goodput", *asked, "--tape", tmp_path / "d", "--failures", "12")
    assert more["big_steps"] == pytest.approx(12 * 52.6 / (30 * 5.0), rel=0.01)


def test_the_command_writes_scavenging_within_the_run(tmp_path: Path, config: Path) -> None:
    asked = ("--learners", "2", "--scavenge", "work", "--run", config)
    days = ("--set", "scavenging.budget_days=2", "--set", "scavenging.extra=2")
    answer = told("goodput", *asked, *days, "--tape", tmp_path / "a")
    assert answer["lives"] == 2 + 2 * 2
    assert answer["goodput"] > 110


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("--tape", "x"), "--run run.toml"),
        (("--failures", "3"), "go with --tape"),
        (("--tape", "x", "--run", "RUN", "--table"), "goes with one cluster"),
        (("--tape", "x", "--run", "RUN", "--learners", "1"), "run.quorum and run.learners_min"),
        (("--tape", "x", "--run", "RUN", "--set", "sync.quorum=2"), "run synth has 1"),
        (("--tape", "x", "--run", "RUN", "--set", "costs.failing_step=lost"), "always kept"),
        (("--tape", "x", "--run", "RUN", "--scavenge", "work", "--failures", "3"), "without"),
        (("--tape", "x", "--run", "RUN", "--days", "3"), "go without --tape"),
        (("--tape", "x", "--run", "RUN", "--seeds", "2"), "go without --tape"),
        (("--tape", "x", "--run", "nothing.toml"), "nothing.toml"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_nothing_is_written(
    arguments: tuple[str, ...],
    answer: str,
    tmp_path: Path,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failure, match=answer) as caught:
        replay("goodput", *(str(config) if each == "RUN" else each for each in arguments))
    assert caught.value.exit_code == 2
    assert not (tmp_path / "x").exists()


def test_every_trial_of_the_study_is_a_run_of_the_same_tokens(config: Path) -> None:
    base = load_config(config).run
    trials = study_trials(steps=100)
    runs = [trial.run_of(base, sequences=32, steps=100) for trial in trials]

    assert len({trial.name for trial in trials}) == len(trials) == 12 + 3 + 5
    assert {run.end.tokens for run in runs} == {32 * 100 * 16}
    for trial, run in zip(trials, runs, strict=True):
        assert run.training.batch_sequences * trial.cluster.learners == 32
        assert run.learners_min == trial.cluster.learners
    with pytest.raises(ConfigInvalid, match="cannot be dealt"):
        homogeneous(16, 0).run_of(base, sequences=24, steps=1)
    with pytest.raises(ConfigInvalid, match="no whole number"):
        scavenging(25, 100, learners=2)


def test_the_trials_of_quorum_differ_in_nothing_but_the_rule() -> None:
    full, bare, graced = heterogeneous()
    assert full.cluster == bare.cluster == graced.cluster
    rules: list[tuple[int, float]] = [(one.quorum, one.gamma) for one in (full, bare, graced)]
    assert rules == [(8, 0.0), (1, 0.0), (1, 0.8)]
    slow, fast = max(full.cluster.step_seconds), min(full.cluster.step_seconds)
    assert fast / slow == pytest.approx(0.82)
    assert isinstance(full, Trial)
