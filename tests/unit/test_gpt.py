"""The built-in decoder: its first parameters, its causality, its names."""

from __future__ import annotations

import pytest
import torch

from decodiloco.config import Model
from decodiloco.training.gpt import VOCABULARY, Gpt, batch_loss, build

SMALL = Model(layers=2, width=16, heads=2, context=16)


def parameters(gpt: Gpt) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in gpt.named_parameters()}


def test_the_same_seed_draws_the_same_parameters_whatever_the_global_state_is():
    torch.manual_seed(1)
    first = parameters(build(SMALL))
    torch.manual_seed(2)
    second = parameters(build(SMALL))

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_building_does_not_move_the_global_random_state():
    before = torch.get_rng_state()

    build(SMALL)

    assert torch.equal(torch.get_rng_state(), before)


def test_another_seed_draws_other_matrices():
    first = parameters(build(SMALL))
    second = parameters(build(SMALL.model_copy(update={"seed": 1})))

    same = {name for name in first if torch.equal(first[name], second[name])}

    assert same == {name for name in first if "norm" in name}


def test_a_token_does_not_see_what_comes_after_it():
    gpt = build(SMALL)
    tokens = torch.arange(16).reshape(1, 16)
    changed = tokens.clone()
    changed[0, 10:] += 100

    logits, others = gpt(tokens), gpt(changed)

    assert torch.allclose(logits[:, :10], others[:, :10], atol=1e-6)
    assert not torch.allclose(logits[:, 10:], others[:, 10:], atol=1e-6)


@pytest.mark.parametrize(("tied", "heads"), [(True, 0), (False, 1)])
def test_a_tied_model_has_no_output_layer_of_its_own(tied: bool, heads: int):
    gpt = build(SMALL.model_copy(update={"tied": tied}))

    assert sum(name == "head.weight" for name in parameters(gpt)) == heads
    assert gpt(torch.zeros(3, 5, dtype=torch.int64)).shape == (3, 5, VOCABULARY)


def test_the_default_model_has_about_a_million_parameters():
    gpt = build(Model())

    assert 800_000 < sum(parameter.numel() for parameter in gpt.parameters()) < 1_000_000


def test_the_loss_begins_near_that_of_a_guess_and_falls_on_one_batch():
    gpt = build(SMALL)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-2)
    windows = torch.arange(4 * 17).reshape(4, 17)

    losses = []
    for _ in range(30):
        loss = batch_loss(gpt, windows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    assert abs(losses[0] - 5.545) < 0.2
    assert losses[-1] < 0.8 * losses[0]
