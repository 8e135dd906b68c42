"""Inner state through a blob and back: training goes on as if it had never stopped."""

from __future__ import annotations

import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from decodiloco.errors import BlobCorrupt
from decodiloco.fragments.of_model import trained
from decodiloco.learner.adopt import zero_moments
from decodiloco.learner.checkpoint import Raw, capture, restore
from decodiloco.store.memory import MemoryStore
from decodiloco.store.tensors import encode_raw, read_raw
from streams.codec import pack, unpack
from tests.hand_run import small_model, train_plainly


def adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def through_a_store(arrays: Raw) -> Raw:
    store = MemoryStore("checkpoints")
    encoded = encode_raw(arrays)
    store.put("k", encoded.parts)
    return read_raw(store, "k", encoded.manifest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    model = small_model(dtype=dtype)
    optimizer = adamw(model)
    for seed in range(3):
        train_plainly(model, optimizer, seed)
    twin = deepcopy(model)
    again = adamw(twin)
    stored = through_a_store(capture(optimizer, trained(model).tensors))
    assert restore(again, trained(twin).tensors, stored, own=True)
    for seed in range(3, 6):
        train_plainly(model, optimizer, seed)
        train_plainly(twin, again, seed)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_random_states_of_torch_python_and_numpy_come_back() -> None:
    model = small_model()
    optimizer = adamw(model)
    stored = through_a_store(capture(optimizer, trained(model).tensors))
    drawn = (torch.rand(2).tolist(), random.random(), np.random.random())
    assert restore(optimizer, trained(model).tensors, stored, own=True)
    assert (torch.rand(2).tolist(), random.random(), np.random.random()) == drawn


def test_borrowed_moments_leave_the_random_states_alone() -> None:
    model = small_model()
    optimizer = adamw(model)
    stored = through_a_store(capture(optimizer, trained(model).tensors))
    torch.rand(5)
    here = torch.get_rng_state()
    assert restore(optimizer, trained(model).tensors, stored, own=False)
    assert torch.equal(torch.get_rng_state(), here)


def test_a_checkpoint_of_another_model_is_no_checkpoint_of_this_one() -> None:
    model = small_model()
    optimizer = adamw(model)
    train_plainly(model, optimizer, 0)
    stored = capture(optimizer, trained(model).tensors)
    other = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 6), nn.Linear(6, 3))
    with pytest.raises(BlobCorrupt, match="does not fit this model"):
        restore(adamw(other), trained(other).tensors, stored, own=False)
    with pytest.raises(BlobCorrupt):
        restore(optimizer, trained(model).tensors, {}, own=True)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.NAdam])
def test_zeroed_moments_leave_an_optimizer_that_still_steps(
    kind: type[torch.optim.Optimizer],
) -> None:
    model = small_model()
    optimizer = kind(model.parameters(), lr=0.01)
    train_plainly(model, optimizer, 0)
    with torch.no_grad():
        for state in optimizer.state.values():
            for value in state.values():
                value.fill_(float("nan"))
    zero_moments(optimizer)
    train_plainly(model, optimizer, 1)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


LIES = {
    "notes that are no table": lambda notes: 7,
    "tensors that are no table": lambda notes: notes | {"tensors": "x"},
    "a place that is no name": lambda notes: notes | {"tensors": {"weight": {"exp_avg": (1, 2)}}},
    "a moment that is a text": lambda notes: notes | {"numbers": {"0.weight": {"step": "x"}}},
    "a step that is missing": lambda notes: notes | {"tensors": {
        name: {key: place for key, place in fields.items() if key != "step"}
        for name, fields in notes["tensors"].items()}},
    "a state of Python that is none": lambda notes: notes | {"random": {
        **notes["random"], "python": (3, b"x")}},
    "a position beyond the state": lambda notes: notes | {"random": {
        **notes["random"], "numpy": ("MT19937", 2**63 - 1, 0, 0.0)}},
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_checkpoint_that_lies_is_refused_and_changes_nothing(lie: str) -> None:
    model = small_model()
    optimizer = adamw(model)
    train_plainly(model, optimizer, seed=1)
    arrays = capture(optimizer, trained(model).tensors)
    notes = unpack(arrays["notes"].tobytes(), 2**20)
    arrays["notes"] = np.frombuffer(pack(LIES[lie](notes)), np.uint8)
    moments, states = deepcopy(optimizer.state_dict()), random.getstate()
    with pytest.raises(BlobCorrupt, match="does not fit this model"):
        restore(optimizer, trained(model).tensors, arrays, own=True)
    assert repr(optimizer.state_dict()) == repr(moments) and random.getstate() == states
