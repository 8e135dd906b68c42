"""The loss on held-out text, and parameters written into a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from blake3 import blake3

from decodiloco.config import Model
from decodiloco.errors import LayoutDiffers
from decodiloco.training.corpus import Corpus
from decodiloco.training.evaluation import held_out_loss, parameters_into
from decodiloco.training.gpt import batch_loss, build

SMALL = Model(layers=1, width=16, heads=2, context=8)


def corpus(held_out: int) -> Corpus:
    tokens = np.frombuffer(blake3(b"text").digest(length=held_out), dtype=np.uint8)
    return Corpus(tokens, tokens, blake3(tokens.tobytes()).digest())


def test_the_loss_is_the_mean_over_all_tokens_when_all_are_asked_for():
    gpt, text = build(SMALL), corpus(8 * 5 + 1)
    windows = np.lib.stride_tricks.sliding_window_view(text.held_out, 9)[::8].astype(np.int64)

    loss = held_out_loss(gpt, text, 10**6)

    assert loss == pytest.approx(batch_loss(gpt, torch.from_numpy(windows)).item(), rel=1e-6)


@pytest.mark.parametrize("sequences", [1, 3, 64])
def test_the_loss_does_not_depend_on_how_many_sequences_are_read_at_once(sequences: int):
    gpt, text = build(SMALL), corpus(4000)

    loss = held_out_loss(gpt, text, 1000, sequences)

    assert loss == pytest.approx(held_out_loss(gpt, text, 1000), rel=1e-6)
    assert held_out_loss(gpt, text, 1000, sequences) == loss


def test_parameters_written_into_another_model_give_the_same_loss():
    source, text = build(SMALL), corpus(400)
    target = build(SMALL.model_copy(update={"seed": 9}))
    arrays = {name: value.detach().numpy() for name, value in source.named_parameters()}

    parameters_into(target, arrays)

    assert held_out_loss(target, text, 400) == held_out_loss(source, text, 400)


def test_a_tied_parameter_may_be_given_by_any_of_its_names():
    tied = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(2, 2, False), "b": torch.nn.Linear(2, 2, False)}
    )
    tied["b"].weight = tied["a"].weight

    parameters_into(tied, {"b.weight": np.ones((2, 2), np.float32)})

    assert torch.equal(tied["a"].weight, torch.ones(2, 2))


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"weight": np.ones((2, 2), np.float32), "other": np.ones(2, np.float32)}, "no parameter"),
        ({"weight": np.ones((2, 3), np.float32)}, "shape"),
        ({}, "no value"),
    ],
)
def test_parameters_of_another_model_are_refused(arrays, complaint):
    with pytest.raises(LayoutDiffers, match=complaint):
        parameters_into(torch.nn.Linear(2, 2, bias=False), arrays)
