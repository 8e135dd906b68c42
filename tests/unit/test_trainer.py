"""The built-in trainer's parts: its batches, its optimizer, its device. Runs are in `chaos`."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from decodiloco.config import Model, Run, Training
from decodiloco.errors import ConfigInvalid
from decodiloco.training.corpus import Corpus
from decodiloco.training.gpt import build
from decodiloco.training.trainer import (
    adamw,
    batches_of,
    seed_draws,
    train_one_step,
    usable_device,
)

SMALL = Model(layers=1, width=16, heads=2, context=8)
SETTINGS = Training(shards=3, batch_sequences=2)
TOKENS = np.arange(9 * 12, dtype=np.uint8)
CORPUS = Corpus(TOKENS, TOKENS, b"d" * 32)


def first_tokens(slot: int) -> set[int]:
    batches = batches_of(SETTINGS, 8, CORPUS, slot)
    return {int(row[0]) for _ in range(batches.per_pass) for row in batches.take()}


def test_learners_up_to_the_number_of_shards_read_different_text():
    parts = [first_tokens(slot) for slot in range(3)]

    assert parts == [{9 * window for window in range(slot, 12, 3)} for slot in range(3)]


def test_more_learners_than_shards_share_them():
    assert first_tokens(4) == first_tokens(1)


def test_only_matrices_are_decayed():
    gpt = build(SMALL)
    decayed, plain = adamw(gpt, SETTINGS).param_groups

    assert {parameter.ndim for parameter in decayed["params"]} == {2}
    assert {parameter.ndim for parameter in plain["params"]} == {1}
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert len(decayed["params"]) + len(plain["params"]) == len(list(gpt.parameters()))


def test_the_same_steps_from_the_same_start_give_the_same_parameters():
    def trained() -> list[torch.Tensor]:
        gpt = build(SMALL)
        optimizer, batches = adamw(gpt, SETTINGS), batches_of(SETTINGS, 8, CORPUS, 0)
        for _ in range(5):
            train_one_step(gpt, optimizer, torch.from_numpy(batches.take()), clip=1.0)
        return [parameter.detach() for parameter in gpt.parameters()]

    assert all(map(torch.equal, trained(), trained()))


def test_random_states_follow_from_the_run_s_seed_and_the_learner():
    def drawn(learner: str) -> tuple[float, float, float]:
        seed_draws(Run(name="trial"), learner)
        return random.random(), float(np.random.random()), float(torch.rand(()))

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        first, again, other = drawn("a"), drawn("a"), drawn("b")
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])

    assert first == again and first[0] != other[0]
    assert first[1] != other[1] and first[2] != other[2]


@pytest.mark.parametrize("name", ["abacus", "cuda:977", "meta"])
def test_a_device_that_is_not_here_is_refused_by_name(name: str):
    with pytest.raises(ConfigInvalid, match=f"here.device '{name}'"):
        usable_device(name)


def test_the_processor_is_always_a_device():
    assert usable_device("cpu") == torch.device("cpu")
