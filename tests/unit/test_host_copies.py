"""Copies of live tensors: exact, in memory lent again, and never while somebody reads it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from decodiloco.learner.adopt import write
from decodiloco.learner.checkpoint import capture
from decodiloco.learner.copies import HostBuffers, HostCopy, copied
from decodiloco.learner.delta import delta_of

NAMES = ["matrix", "gain"]


def live(dtype: torch.dtype = torch.float32, device: str = "cpu") -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    matrix = torch.randn(4, 6, generator=draw).to(device, dtype)
    return {"matrix": matrix.t(), "gain": torch.randn(6, generator=draw).to(device, dtype)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_copy_is_what_the_tensors_held_whatever_is_trained_afterwards(dtype: torch.dtype) -> None:
    tensors = live(dtype)
    expected = copied(tensors, NAMES)

    arrays, arrived = HostBuffers().copied(tensors, NAMES)
    for tensor in tensors.values():
        tensor.zero_()

    assert arrived is None
    for name in NAMES:
        assert arrays[name].flags.c_contiguous
        np.testing.assert_array_equal(arrays[name], expected[name])


def test_memory_is_lent_again_once_nobody_holds_the_array() -> None:
    buffers, tensors = HostBuffers(), live()
    first, _ = buffers.copied(tensors, NAMES)
    places = {name: first[name].ctypes.data for name in NAMES}

    del first
    gc.collect()
    again, _ = buffers.copied(tensors, NAMES)

    assert {name: again[name].ctypes.data for name in NAMES} == places


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[1:][1:],
        lambda array: array.reshape(-1).view(np.uint8).data,
        lambda array: torch.from_numpy(array)[2:],
        lambda array: np.frombuffer(memoryview(array), np.uint16),
    ],
)
def test_memory_is_not_lent_while_any_view_of_it_is_held(
    view: Callable[[npt.NDArray[np.float32]], Any],
) -> None:
    buffers, tensors = HostBuffers(), live()
    arrays, _ = buffers.copied(tensors, NAMES)
    held = view(arrays["matrix"])
    before = bytes(np.asarray(held).tobytes())

    del arrays
    gc.collect()
    for tensor in tensors.values():
        tensor.zero_()
    later, _ = buffers.copied(tensors, NAMES)

    assert np.asarray(held).tobytes() == before
    assert not later["matrix"].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_anchor_is_what_the_live_tensors_hold_after_an_adoption(
    dtype: torch.dtype, alpha: float
) -> None:
    tensors = live(dtype)
    merged = {name: array + np.float32(0.1) for name, array in copied(live(), NAMES).items()}

    anchor = write(tensors, merged, alpha)

    for name, array in copied(tensors, NAMES).items():
        np.testing.assert_array_equal(anchor[name], array)


def test_training_after_an_adoption_leaves_the_anchor_alone() -> None:
    tensors = live()
    anchor = write(tensors, copied(tensors, NAMES), 0.0)
    before = {name: array.copy() for name, array in anchor.items()}

    for tensor in tensors.values():
        tensor.add_(1)

    for name in NAMES:
        np.testing.assert_array_equal(anchor[name], before[name])


def test_a_checkpoint_in_lent_memory_is_that_in_fresh_memory() -> None:
    parameters = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in live().items()}
    optimizer = torch.optim.AdamW(parameters.values())
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    fresh, buffers = capture(optimizer, parameters), HostBuffers()

    capture(optimizer, parameters, buffers)  # let go at once: its memory is lent again
    lent = capture(optimizer, parameters, buffers)
    optimizer.step()

    assert lent.keys() == fresh.keys()
    for name, array in fresh.items():
        np.testing.assert_array_equal(lent[name], array)
        assert lent[name].shape == array.shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_from_a_device_arrives_beside_training_and_holds_what_was_there(
    dtype: torch.dtype,
) -> None:
    buffers, tensors = HostBuffers(), live(dtype, "cuda")
    expected = copied(tensors, NAMES)

    arrays, arrived = buffers.copied(tensors, NAMES)
    for tensor in tensors.values():
        tensor.zero_()
    zeroes = {name: np.zeros_like(array) for name, array in arrays.items()}
    delta = delta_of(HostCopy(zeroes, arrays, arrived))

    assert arrived is not None
    for name in NAMES:
        np.testing.assert_array_equal(-delta[name], expected[name])
