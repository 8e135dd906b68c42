"""The anchor of *carry*: one learner, K = 1, mean, outer rate 1, no momentum is plain training.

At any latency: merged versions come back many steps after the copies that are in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from decodiloco.config import Adoption
from decodiloco.fragments.of_model import trained
from decodiloco.learner.anchors import Anchors
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.jobs import FetchJob, Job
from decodiloco.learner.state import Anchor, Fragment
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import delta_key
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import read_tensors
from replay.place import find_place
from replay.verify import Proof, verify_place
from streams.events import DeltaOffered, FragmentMerged, Word
from tests.builders import manifest
from tests.hand_run import HandRun, plain_run, small_model, train, train_plainly

STEPS = 60
CARRY = {"adoption": {"carry": True}}


class SlowLine:
    """A learner's jobs and words, each of which ends so many steps after it was begun."""

    def __init__(
        self, run: HandRun, core: LearnerCore, upload: int, download: int, inbox: int = 0
    ) -> None:
        self.run, self.core = run, core
        self.upload, self.download, self.inbox = upload, download, inbox
        self.under_way: list[tuple[int, Job]] = []
        self.said: tuple[int, Word] | None = None

    def work(self, step: int) -> None:
        """Begins what can be begun, and ends what is due."""
        while True:
            for job in self.core.jobs():
                takes = self.download if isinstance(job, FetchJob) else self.upload
                self.under_way.append((step + takes, job))
            due = [job for at, job in self.under_way if at <= step]
            self.under_way = [(at, job) for at, job in self.under_way if at > step]
            for job in due:
                self.core.done(job, job.run_on(self.run.store), 0.0)
            if not due:
                return

    def speak(self, step: int) -> None:
        """Says all that is to be said, one word at a time."""
        while True:
            if self.said is not None and self.said[0] <= step:
                self.run.hear(self.said[1])
                self.said = None
            word = self.core.say()
            if word is None:
                return
            self.said = step + self.inbox, word


def values(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in trained(model).tensors.items()}


def slow_run(
    models: list[nn.Module],
    latencies: Sequence[tuple[int, ...]],
    merge_steps: int,
    learn: Callable[[int, nn.Module], None] | None = None,
    store: BlobStore | None = None,
    **settings: object,
) -> HandRun:
    """Learners that train on different words, behind lines of different speeds."""
    run = HandRun(plain_run(**settings), models[0], store)
    cores = [run.join(name, model) for name, model in zip("abc", models, strict=False)]
    lines = [SlowLine(run, core, *each) for core, each in zip(cores, latencies, strict=True)]
    for step in range(STEPS):
        if run.can_open():
            run.open_round()
        for number, (model, core) in enumerate(zip(models, cores, strict=True)):
            if learn is None:
                train(model, core, seed=step + 1000 * number)
            else:
                learn(number, model)
                core.step(tokens=8, loss=1.0, step_seconds=1.0)
        for line in lines:
            line.work(step)
            line.speak(step)
        if step % (merge_steps + 1) == merge_steps:
            run.merge()
        for line in lines:
            line.work(step)
            line.core.adopt()
    return run


def plainly(model: nn.Module) -> dict[str, np.ndarray]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        train_plainly(model, optimizer, seed=step)
    return values(model)


def farthest(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(array - theirs[name]).max()) for name, array in ours.items())


@pytest.mark.parametrize("upload", [0, 1, 3, 10])
@pytest.mark.parametrize("download", [0, 1, 3, 10])
@pytest.mark.parametrize("merge_steps", [0, 3])
def test_one_learner_that_carries_trains_as_a_plain_loop_does_at_any_latency(
    upload: int, download: int, merge_steps: int
) -> None:
    model = small_model()
    plain = deepcopy(model)
    run = slow_run([model], [(upload, download)], merge_steps, **CARRY)
    assert run.complaints == [] and run.state.step >= 4
    assert farthest(values(model), plainly(plain)) < 1e-6


@pytest.mark.parametrize("inbox", [1, 2, 7])
@pytest.mark.parametrize("download", [0, 3])
def test_one_learner_that_carries_trains_as_a_plain_loop_does_while_its_words_are_under_way(
    inbox: int, download: int
) -> None:
    model = small_model()
    plain = deepcopy(model)
    run = slow_run([model], [(1, download, inbox)], 0, **CARRY)
    assert run.complaints == [] and run.state.step >= 4
    assert farthest(values(model), plainly(plain)) < 1e-6


def test_a_copy_is_taken_off_only_when_the_version_that_holds_it_is_adopted() -> None:
    fragment = Fragment(
        newest=2, manifest=manifest(), anchor=Anchor(0, 3, 30), merged_step=8, merged_version=2
    )
    assert (fragment.merged_since(1), fragment.merged_since(2)) == (None, 8)
    adopted = replace(fragment, anchor=Anchor(2, 8, 80))
    assert (adopted.merged_since(2), adopted.merged_since(3)) == (None, None)


def test_what_was_copied_before_an_overwrite_is_never_taken_off() -> None:
    parameters = {"t": torch.ones(2)}
    anchors = Anchors(Adoption(carry=True))
    zero = {"t": np.zeros(2, np.float32)}
    anchors.load(parameters, 0, zero)
    parameters["t"] += 1
    anchors.copy(parameters, 0, ["t"], 4)
    anchors.load(parameters, 0, zero)
    with pytest.raises(KeyError):
        anchors.adopt(parameters, 0, zero, 4)


@pytest.mark.parametrize(("upload", "download"), [(1, 1), (3, 0), (0, 3), (10, 10)])
def test_one_learner_that_overwrites_does_not(upload: int, download: int) -> None:
    model = small_model()
    plain = deepcopy(model)
    run = slow_run([model], [(upload, download)], 0)
    assert run.state.step >= 4
    assert farthest(values(model), plainly(plain)) > 1e-3


def learn_by_rote(number: int, model: nn.Module) -> None:
    """A step that adds the same to every parameter: one learner's 0.5, the next one's 1.0 ..."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * (number + 1))


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("seconds", [(0, 0), (3, 5), (10, 1)])
def test_a_delta_holds_the_steps_that_its_offer_tells_whatever_merges_came_between(
    seconds: tuple[int, int], carry: bool
) -> None:
    models = [small_model() for _ in range(3)]
    latencies = [(0, 0), seconds, (4, 2)]
    merge = {"rule": "mean", "embedding_rule": "mean", "norm_clip": "none"}
    run = slow_run(
        models,
        latencies,
        1,
        learn_by_rote,
        merge={**merge, "staleness_versions_max": 3},
        adoption={"carry": carry},
    )
    late = 0
    for envelope in run.tape:
        word = envelope.event
        if isinstance(word, DeltaOffered):
            a_step = 0.5 * ("abc".index(word.learner) + 1)
            for array in delta_of(run, word).values():
                np.testing.assert_allclose(array, -word.inner_steps * a_step, atol=1e-3)
        if isinstance(word, FragmentMerged):
            late += sum(is_late(run, word, position) for position in word.contributions)
    assert late > 0, "nothing rode along: this shows too little"
    assert run.complaints == []


def delta_of(run: HandRun, word: DeltaOffered) -> dict[str, np.ndarray]:
    key = delta_key(
        "trial", word.learner, word.incarnation, word.fragment, word.learner_step, word.manifest
    )
    return dict(read_tensors(run.store, key, word.manifest))


def is_late(run: HandRun, merge: FragmentMerged, position: int) -> bool:
    offer = run.tape[position - 1].event
    return isinstance(offer, DeltaOffered) and offer.base_version < merge.version - 1


def proof_of(folder: Path, carry: bool) -> Proof:
    """Three learners whose deltas often come late; the run as `replay verify` sees it."""
    models = [small_model() for _ in range(3)]
    store = open_store((folder / "store").as_uri())
    run = slow_run(
        models, [(2, 3), (1, 4), (6, 1)], 1, learn_by_rote, store, adoption={"carry": carry}
    )
    return verify_place(find_place(run.save_tape(folder / "run.tape"), None), 1, lambda *_: None)


def test_under_carry_nothing_is_dropped_and_the_fates_add_up(tmp_path: Path) -> None:
    merged = {}
    for carry in (True, False):
        folder = tmp_path / str(carry)
        folder.mkdir()
        proof = proof_of(folder, carry)
        assert proof.ok, proof.first_difference
        assert len(proof.fates) == 6 and proof.merges_checked == proof.merges > 10
        dropped = sum(row.fates["dropped"] for row in proof.fates)
        merged[carry] = sum(row.fates["merged"] for row in proof.fates)
        assert (dropped == 0) is carry
    assert merged[True] > 1.2 * merged[False]


def test_a_learner_that_carries_heals_by_overwriting_everything(tmp_path: Path) -> None:
    steps = 0

    def learn(number: int, model: nn.Module) -> None:
        nonlocal steps
        steps += number
        learn_by_rote(number, model)
        if number == 1 and steps == STEPS // 2:
            with torch.no_grad():
                next(iter(model.parameters())).fill_(float("nan"))

    models = [small_model() for _ in range(2)]
    store = open_store((tmp_path / "store").as_uri())
    run = slow_run(models, [(0, 0), (2, 3)], 1, learn, store, **CARRY)
    healed = run.cores[1].state.healed_step
    assert healed >= STEPS // 2 and run.cores[0].state.healed_step == 0
    assert all(np.isfinite(array).all() for array in values(models[1]).values())
    words = [word for word in run.facts(DeltaOffered) if isinstance(word, DeltaOffered)]
    ours = [word for word in words if word.learner == "b"]
    told = [(each.fragment, each.learner_step) for word in ours for each in word.adopted]
    assert (0, healed) in told and (1, healed) in told, "the healing is on the tape"
    after = [word for word in ours if word.learner_step > healed]
    assert after and all(word.learner_step - word.inner_steps >= healed for word in after)
    for word in after:
        for array in delta_of(run, word).values():
            np.testing.assert_allclose(array, -word.inner_steps, atol=1e-3)
    proof = verify_place(find_place(run.save_tape(tmp_path / "run.tape"), None), 1, lambda *_: None)
    assert proof.ok, proof.first_difference
    dropped = {row.learner: row.fates["dropped"] for row in proof.fates}
    assert dropped["b"] > 0 == dropped["a"]
