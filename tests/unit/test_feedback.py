"""The numbers of error feedback: what is lost is there again later, in the core as in the sums."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

from decodiloco.errors import BlobCorrupt
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.feedback import (
    Arrays,
    Coded,
    encode_keeping,
    from_arrays,
    to_arrays,
    with_residuals,
)
from decodiloco.learner.jobs import MomentsJob
from decodiloco.store.codecs import decode
from replay.retrain.shelf import tensors_of
from streams.events import CheckpointStored, DeltaOffered
from tests.hand_run import HandRun, plain_run, small_model, train
from tests.merge_orders import numbers

SIZE = 5000
EVERY = ("bf16", "int8", "int4")


def norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


@pytest.mark.parametrize("codec", EVERY)
def test_what_was_coded_adds_up_to_what_was_trained_but_for_about_one_coding(codec: str) -> None:
    trained, coded, plainly = np.zeros((3, SIZE))
    residuals: list[Coded] = []
    once = 0.0
    for seed in range(30):
        delta: Arrays = {"a": numbers(SIZE, seed) + np.float32(0.02)}
        blob, residual = encode_keeping(with_residuals(delta, residuals, codec), codec)
        alone, _ = encode_keeping(delta, codec)
        trained += delta["a"]
        coded += tensors_of(blob)["a"]
        plainly += tensors_of(alone)["a"]
        once = max(once, norm(tensors_of(alone)["a"] - delta["a"]))
        residuals = [residual]
    assert norm(trained - coded) < 1.5 * once
    assert norm(trained - plainly) > 3 * once, "without feedback errors pile up"


@pytest.mark.parametrize("codec", EVERY)
def test_a_residual_is_what_was_lost_but_for_its_own_coding(codec: str) -> None:
    delta: Arrays = {"a": numbers(SIZE, 1)}
    blob, residual = encode_keeping(delta, codec)
    lost = delta["a"] - tensors_of(blob)["a"]
    assert norm(decode(residual["a"], codec, SIZE) - lost) < 0.12 * norm(lost)


def alone(codec: str = "int4") -> tuple[HandRun, LearnerCore, object]:
    model = small_model()
    settings = {"codecs": {"delta": codec, "feedback": True}}
    run = HandRun(plain_run(training={"checkpoint_steps": 4}, **settings), model)
    return run, run.join("a", model), model


def go(run: HandRun, core: LearnerCore, model: object, steps: range) -> None:
    """Train, offer, merge, adopt."""
    for step in steps:
        run.open_round()
        train(model, core, step)
        run.exchange()
        run.merge()
        run.work(core)


def restored(run: HandRun, core: LearnerCore) -> dict[int, Coded]:
    """What a new life of the learner finds in its own checkpoint."""
    stored = core.state.checkpoints["a"]
    return core.residuals_in(stored, MomentsJob("trial", stored).run_on(run.store))


def next_life(run: HandRun) -> tuple[LearnerCore, object]:
    """A core that has read the tape and is restored, but not joined."""
    model = small_model()
    spare = HandRun(run.opening.run, model)
    core = spare.join("z", deepcopy(model))  # only for an optimizer and its names
    life = LearnerCore(run.opening, "a", dict(model.named_parameters()), core.optimizer)
    for envelope in run.tape:
        run.give(life, envelope)
    life.load(run.store, b"m" * 16)
    return life, model


@pytest.mark.parametrize("codec", EVERY)
def test_a_killed_learner_finds_the_residuals_of_its_checkpoint(codec: str) -> None:
    run, core, model = alone(codec)
    go(run, core, model, range(8))
    words = [one for one in run.facts(CheckpointStored) if isinstance(one, CheckpointStored)]
    assert words[-1].residuals, "the checkpoint tells what it holds"

    life, _ = next_life(run)
    found = restored(run, life)
    still = {one.position: one for one in core.state.residuals if one.position in found}
    assert found and {one.position for one in life.state.residuals} >= still.keys()
    for position, residual in found.items():
        if position in still:
            (kept,) = core._kept.of([still[position]])
            assert residual == kept


def test_a_checkpoint_without_what_its_fact_says_is_passed_over() -> None:
    run, core, model = alone()
    go(run, core, model, range(8))
    life, _ = next_life(run)
    stored = life.state.checkpoints["a"]
    arrays = MomentsJob("trial", stored).run_on(run.store)
    places = sorted(name for name in arrays if name.startswith("residual/"))
    wanted = [one for one in life.state.residuals if one.position in stored.residuals]
    assert places and wanted
    place = next(name for name in places if int(name.split("/")[1]) == wanted[0].position)
    infinite = arrays[place].copy()
    infinite[:2] = (0xC0, 0x7F)
    strange = arrays[place].copy()
    strange[:2] = 0xFF
    for bent in (None, arrays[place][:-1], infinite, strange):
        other = {name: array for name, array in arrays.items() if name != place}
        if bent is not None:
            other[place] = bent
        with pytest.raises(BlobCorrupt, match="without a sound residual/"):
            life.residuals_in(stored, other)


def test_residuals_come_back_from_a_checkpoint_as_they_were() -> None:
    run, core, model = alone()
    go(run, core, model, range(5))
    held = {one.position: core._kept.of([one])[0] for one in core.state.residuals}
    layout = run.opening.layout
    assert held
    assert from_arrays(to_arrays(held), core.state.residuals, layout, "int4") == held


def test_a_delta_holds_the_residual_of_the_one_before() -> None:
    run, core, model = alone()
    go(run, core, model, range(6))
    offers = [one for one in run.facts(DeltaOffered) if isinstance(one, DeltaOffered)]
    assert [bool(one.residuals) for one in offers] == [False, False, True, True, True, True]


def test_memory_holds_one_residual_a_fragment_when_all_is_merged() -> None:
    run, core, model = alone()
    go(run, core, model, range(20))
    assert len(core._kept._kept) <= 2 * run.opening.layout.fragments
