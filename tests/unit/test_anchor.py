"""The anchor: one learner, K = 1, mean, outer rate 1, no momentum, no latency is plain training."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from torch import nn

from decodiloco.fragments.of_model import trained
from tests.hand_run import HandRun, plain_run, small_model, train, train_plainly

STEPS = 30


def values(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in trained(model).tensors.items()}


def trained_in_a_run(model: nn.Module) -> HandRun:
    run = HandRun(plain_run(), model)
    core = run.join("a", model)
    for step in range(STEPS):
        run.open_round()
        train(model, core, seed=step)
        run.exchange()
        run.merge()
        core.work(run.store)
        core.adopt()
    assert run.state.step == STEPS
    return run


def trained_plainly(model: nn.Module, run: HandRun, through_deltas: bool) -> None:
    """A plain loop that at each version of a fragment sets p to float32(a - float32(a - p))."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    tensors = trained(model).tensors
    anchors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    for step in range(STEPS):
        train_plainly(model, optimizer, seed=step)
        for tensor in run.opening.layout.of(step % 2):
            live = tensors[tensor.name]
            with torch.no_grad():
                if through_deltas:
                    live.copy_(anchors[tensor.name] - (anchors[tensor.name] - live))
                anchors[tensor.name] = live.detach().clone()


def test_one_learner_without_latency_trains_as_a_plain_loop_does_bit_for_bit() -> None:
    model = small_model()
    plain, loose = deepcopy(model), deepcopy(model)
    run = trained_in_a_run(model)
    trained_plainly(plain, run, through_deltas=True)
    trained_plainly(loose, run, through_deltas=False)
    ours, same, near = values(model), values(plain), values(loose)
    for name, array in ours.items():
        assert np.array_equal(array, same[name]), name
        np.testing.assert_allclose(array, near[name], atol=1e-6, rtol=0)


def test_what_was_merged_last_is_what_the_learner_holds() -> None:
    model = small_model()
    run = trained_in_a_run(model)
    last = (run.state.next_round - 2) % 2
    held = values(model)
    for name, array in run.merged(last).items():
        assert np.array_equal(held[name], array)
    assert run.complaints == []
