"""`replay state` on a real run: what it rebuilds is what the live processes held and measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from decodiloco.config import load_config
from decodiloco.merge.model_digest import model_digest
from decodiloco.store.tensors import encode_tensors
from decodiloco.training import gpt
from decodiloco.training.corpus import read_corpus
from decodiloco.training.evaluation import held_out_loss, parameters_into
from replay.place import find_place
from replay.state import read_opening
from streams.envelope import Envelope
from streams.events import EvaluationReported, FragmentMerged, LearnerLeft, RunClosed, RunOpened
from streams.manifest import Manifest
from tests.chaos.tampering import replay, told_by

LOSS_TOLERANCE = 1e-5  # relative

pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def tape(finished_demo: Path) -> list[Envelope]:
    return list(find_place(finished_demo / "run.tape").envelopes())


def merges(tape: list[Envelope]) -> list[tuple[int, FragmentMerged]]:
    return [(each.position, each.event) for each in tape if isinstance(each.event, FragmentMerged)]


def rebuilt(folder: Path, step: int, path: Path) -> dict[str, object]:
    """What `replay state --step -o` tells; its model file is at `path` then."""
    done = replay("state", folder / "run.tape", "--step", step, "-o", path, "--json")
    assert done.returncode == 0, done.stderr
    return told_by(done)


def recorded(tape: list[Envelope], opening: tuple[Manifest, ...], step: int) -> list[Manifest]:
    """The manifest of each fragment's parameters as the tape has them after a step."""
    newest = list(opening)
    for _, merge in merges(tape)[:step]:
        newest[merge.fragment] = merge.parameters
    return newest


def test_the_state_before_a_merge_has_the_digest_that_the_live_syncer_recorded(
    finished_demo: Path, tape: list[Envelope]
) -> None:
    made = merges(tape)
    for position, merge in (made[0], made[1], made[len(made) // 2], made[-1]):
        done = replay("state", finished_demo, "--at", position - 1, "--json")

        told = told_by(done)
        assert (done.returncode, told["digest"]) == (0, merge.state_digest.hex())
        assert (told["position"], told["step"]) == (position - 1, merge.step - 1)


def test_the_model_at_a_step_has_the_digests_of_the_blobs_that_the_live_syncer_stored(
    finished_demo: Path, tape: list[Envelope], tmp_path: Path
) -> None:
    place = find_place(finished_demo / "run.tape")
    opened = tape[0].event
    assert isinstance(opened, RunOpened)
    opening = read_opening(place.open_store(opened), opened)
    last = len(merges(tape))

    for step in (0, 1, 5, last // 2, last):
        path = tmp_path / f"{step}.safetensors"
        told = rebuilt(finished_demo, step, path)
        arrays = load_file(path)

        assert told["step"] == sum(told["versions"]) == step
        found = [
            encode_tensors(
                {tensor.name: arrays.pop(tensor.name) for tensor in opening.layout.of(fragment)},
                opening.run.codecs.fragment,
            ).manifest
            for fragment in range(opening.layout.fragments)
        ]
        assert found == recorded(tape, opening.fragments, step)
        assert not arrays, "the file holds the run's tensors and no others"


def test_the_model_at_a_step_has_the_loss_that_the_evaluator_recorded_for_it(
    finished_demo: Path, tape: list[Envelope], tmp_path: Path
) -> None:
    run = load_config(finished_demo / "run.toml").run
    model = gpt.build(run.model)
    corpus = read_corpus(run.training, run.model.context)
    reports = [each.event for each in tape if isinstance(each.event, EvaluationReported)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    for report in reports:
        told = rebuilt(finished_demo, report.step, tmp_path / "model.safetensors")
        parameters_into(model, load_file(tmp_path / "model.safetensors"))
        loss = held_out_loss(model, corpus, run.training.evaluate_tokens)

        assert (corpus.digest, told["versions"]) == (report.dataset_digest, list(report.versions))
        assert loss == pytest.approx(report.loss, rel=LOSS_TOLERANCE)

    torch.set_num_threads(threads)
    assert len(reports) >= 3
    assert (reports[0].step, reports[-1].step) == (0, len(merges(tape)))
    assert reports[-1].loss < reports[0].loss


def test_the_last_model_is_the_one_that_every_learner_left_with(
    finished_demo: Path, tape: list[Envelope], tmp_path: Path
) -> None:
    (closed,) = [each.event for each in tape if isinstance(each.event, RunClosed)]
    farewells = [each.event for each in tape if isinstance(each.event, LearnerLeft)]
    opened = tape[0].event
    assert isinstance(opened, RunOpened)
    opening = read_opening(find_place(finished_demo).open_store(opened), opened)

    rebuilt(finished_demo, closed.step, tmp_path / "model.safetensors")
    arrays = load_file(tmp_path / "model.safetensors")

    digest = model_digest(opening.layout, arrays.items())
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert [closed.digest, *(each.digest for each in farewells)] == [digest] * 3
