"""The study: its cases and settings, its file of results, its figures with their errors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from decodiloco.errors import ConfigInvalid
from replay.progress import silently
from replay.study import paper
from replay.study.campaign import circumstances, run_campaign
from replay.study.cases import BASE, PARTS, SAME_TIME_PERCENT, Case, cases_of
from replay.study.results import (
    Result,
    add_circumstances,
    add_result,
    circumstances_of,
    read_results,
)
from replay.study.settings import Study, ideal_time, run_of, trial_of
from replay.study.summary import Summary, spread_of, student_95
from replay.study.trial import tried
from streams.errors import AskedWrongly
from tests.study_results import result

TINY = Study(
    steps=24, width=8, heads=1, layers=1, context=8, fragments=2, sequences=16,
    evaluate_tokens=64, evaluations=2,
)  # fmt: skip


def test_every_case_is_named_by_what_differs_and_is_run_once() -> None:
    cases = cases_of(())
    assert BASE.name == "learners=4"
    assert Case(learners=8, rule="mean", momentum=0.9).name == "learners=8 rule=mean momentum=0.9"
    assert len({case.name for case in cases}) == len(cases) == 58
    assert sum(len(part()) for part in PARTS.values()) > len(cases)


def test_a_part_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AskedWrongly, match=r"no part 'speed'; it has learners, rules"):
        cases_of(["rules", "speed"])


@pytest.mark.parametrize("case", cases_of(()), ids=lambda case: case.name)
def test_every_case_trains_the_same_tokens_but_those_that_are_told_to_stop(case: Case) -> None:
    study = Study()
    run = run_of(case, 1, study)
    assert run.end.tokens == 32 * 64 * study.steps * case.steps_percent // 100
    assert run.training.batch_sequences * case.learners == study.sequences
    assert run.training.shards % case.learners_most == 0
    assert run.model.seed == 1


def test_a_case_becomes_the_settings_and_the_cluster_that_it_names() -> None:
    study = Study()
    alone = Case(learners=8, quorum=1, grace=False, slower_percent=18)
    run = run_of(alone, 0, study)
    assert (run.quorum, run.window.gamma) == (1, 0.0)
    assert run_of(replace(alone, quorum=8), 0, study).quorum == 8
    assert run_of(replace(alone, grace=True), 0, study).window.gamma == 0.8
    assert len(set(trial_of(alone, study).cluster.step_seconds)) == 2
    far = trial_of(Case(transfer_steps=3.0), study).cluster
    assert far.upload_seconds == far.fetch_seconds == 3.0 * far.median_step_seconds
    assert run_of(Case(adopted="carry"), 0, study).adoption.carry
    assert run_of(Case(adopted="blend"), 0, study).adoption.alpha == 0.5
    assert trial_of(Case(chips=1_200_000), study).cluster.failures is not None
    assert trial_of(Case(), study).cluster.failures is None
    assert trial_of(Case(extra_percent=25), study).cluster.availability is not None


def test_the_ideal_times_of_scavenging_are_those_of_the_paper() -> None:
    for percent, row in paper.SCAVENGING.items():
        ideal = ideal_time(Case(extra_percent=percent))
        assert ideal == pytest.approx(row[0], abs=0.006)
        assert SAME_TIME_PERCENT.get(percent, 100) == pytest.approx(100 * ideal, abs=0.6)


@pytest.mark.parametrize(
    "case",
    [
        Case(learners=1, chips=2_400_000),
        Case(learners=2, chips=2_400_000),
        Case(adopted="carry", transfer_steps=1.0),
        Case(extra_percent=25),
    ],
    ids=lambda case: case.name,
)
def test_a_case_is_trained_for_real_and_comes_out_the_same_again(case: Case) -> None:
    first, again = tried(case, 0, TINY), tried(case, 0, TINY)
    assert replace(first, cpu_seconds=0.0) == replace(again, cpu_seconds=0.0)
    assert first.losses[0][1] == pytest.approx(math.log(256), abs=0.2)
    assert first.loss == first.losses[-1][1] < first.losses[0][1]
    assert TINY.tokens_of(case) <= first.tokens < 1.5 * TINY.tokens_of(case)
    assert 0 < first.goodput < 101


def test_cases_of_one_seed_begin_with_the_same_parameters_and_seeds_differ() -> None:
    starts = [tried(case, 0, TINY).losses[0] for case in (Case(learners=1), Case(), Case(quorum=4))]
    assert len({loss for _, loss in starts}) == 1
    assert tried(Case(learners=1), 1, TINY).losses[0] != starts[0]


def test_a_campaign_that_was_stopped_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.jsonl"
    job = Case(learners=1)
    assert len(list(run_campaign([job], range(1), TINY, file, 1, silently))) == 1
    file.write_text(file.read_text() + '{"case": "learn')
    told: list[tuple[int, int]] = []
    new = list(run_campaign([job], range(2), TINY, file, 1, lambda *now: told.append(now)))
    assert [one.seed for one in new] == [1]
    assert told == [(1, 2), (2, 2)]
    assert [(one.case, one.seed) for one in read_results(file)] == [(job.name, 0), (job.name, 1)]
    assert circumstances_of(file) == [circumstances(TINY)]
    assert list(run_campaign([job], range(2), TINY, file, 1, silently)) == []


def test_a_case_comes_out_the_same_in_another_process(tmp_path: Path) -> None:
    job = Case(learners=1)
    near, far = tmp_path / "near.jsonl", tmp_path / "far.jsonl"
    list(run_campaign([job], range(1), TINY, near, 1, silently))
    list(run_campaign([job], range(1), TINY, far, 2, silently))
    assert read_results(near)[0].loss == read_results(far)[0].loss


def test_results_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    add_circumstances(file, circumstances(TINY))
    add_circumstances(file, circumstances(TINY))
    add_result(file, result(BASE, 0, 2.0))
    assert len(file.read_text().splitlines()) == 2
    with pytest.raises(AskedWrongly, match="name another file with --results"):
        read_results(file, Study())


@pytest.mark.parametrize("line", ["nonsense", '{"case": "learners=4", "seed": "zero"}', "{}"])
def test_a_file_that_holds_no_results_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(ConfigInvalid, match=r"results\.jsonl"):
        read_results(file)


def test_circumstances_that_are_none_are_named_by_their_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"settings": "7dd0a9727fb1e83d"}\n')
    with pytest.raises(ConfigInvalid, match=r"results\.jsonl line 1 .* study: Field required"):
        circumstances_of(file)


def test_lines_of_results_are_json_with_sorted_keys(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    add_result(file, result(BASE, 0, 2.0))
    told = json.loads(file.read_text())
    assert list(told) == sorted(told)
    assert read_results(file) == [result(BASE, 0, 2.0)]


def test_differences_are_paired_by_seed() -> None:
    other = Case(learners=8)
    losses = {BASE: (2.0, 2.5, 3.0), other: (2.1, 2.6, 3.13)}
    summary = Summary(
        [result(case, seed, loss) for case, row in losses.items() for seed, loss in enumerate(row)]
    )
    difference = summary.difference(other, BASE)
    assert difference is not None and difference.error is not None
    assert difference.mean == pytest.approx(0.11)
    assert difference.error == pytest.approx(0.01)
    assert summary.spread(BASE).deviation == pytest.approx(0.5)
    assert summary.difference(BASE, Case(learners=2)) is None


def test_the_noise_of_two_cases_is_that_of_their_paired_difference() -> None:
    other = Case(learners=8)
    pairs = ((2.0, 2.1), (2.5, 2.6), (3.0, 3.13))
    results: list[Result] = []
    for seed, (one, two) in enumerate(pairs):
        results += [result(BASE, seed, one), result(other, seed, two)]
    noise = Summary(results).noise([BASE, other])
    assert noise is not None
    assert noise.error == pytest.approx(0.01)
    assert noise.freedom == 2
    assert noise.reach == pytest.approx(0.043)


def test_one_seed_or_one_case_has_no_error() -> None:
    summary = Summary([result(BASE, 0, 2.0)])
    assert summary.noise([BASE, Case(learners=8)]) is None
    assert spread_of([2.0]).deviation is None
    assert student_95(1) == 12.71 and student_95(1000) == 1.96
