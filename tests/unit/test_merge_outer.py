"""The outer step is torch's SGD with Nesterov momentum, and the same bits anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decodiloco.merge import outer_step
from decodiloco.merge.exact import CHUNK_ELEMENTS, rounded
from tests.merge_orders import numbers


@pytest.mark.parametrize(("lr", "mu"), [(0.7, 0.9), (0.4, 0.5), (1.0, 0.1)])
def test_ten_steps_are_those_of_torch_within_float32_rounding(lr: float, mu: float) -> None:
    parameter, momentum = numbers(5000, 1), np.zeros(5000, np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(parameter.copy()))
    sgd = torch.optim.SGD([theirs], lr=lr, momentum=mu, nesterov=True)
    for step in range(10):
        gradient = numbers(5000, 100 + step, 0.1)
        parameter, momentum = outer_step(parameter, momentum, gradient, lr, mu)
        theirs.grad = torch.from_numpy(gradient)
        sgd.step()
        buffer = sgd.state[theirs]["momentum_buffer"].numpy()
        assert np.abs(parameter - theirs.detach().numpy()).max() < 1e-6
        assert np.abs(momentum - buffer).max() < 1e-6


def test_rate_one_without_momentum_gives_back_the_learners_parameters() -> None:
    anchor = numbers(3000, 1)
    live = anchor + numbers(3000, 2, 1e-3)
    near = np.abs(anchor) > 0.01  # where anchor - live is exact
    parameter, momentum = outer_step(anchor, np.zeros_like(anchor), anchor - live, 1.0, 0.0)
    assert parameter[near].tobytes() == live[near].tobytes()
    assert momentum.tobytes() == (anchor - live).tobytes()


def test_each_stored_value_is_rounded_once() -> None:
    parameter, momentum, gradient = (numbers(4000, seed) for seed in (3, 4, 5))
    new_parameter, new_momentum = outer_step(parameter, momentum, gradient, 0.7, 0.9)
    mu, lr = rounded(0.9), rounded(0.7)
    for place in range(0, 4000, 97):
        p, b, g = (float(array[place]) for array in (parameter, momentum, gradient))
        b = rounded(mu * b + g)
        d = rounded(g + mu * b)
        assert float(new_momentum[place]) == b
        assert float(new_parameter[place]) == rounded(p - lr * d)


def test_chunks_leave_no_seam() -> None:
    elements = CHUNK_ELEMENTS + 7
    arrays = [numbers(elements, seed) for seed in (1, 2, 3)]
    whole = outer_step(*arrays, 0.7, 0.9)
    tail = outer_step(*(array[-9:] for array in arrays), 0.7, 0.9)
    assert [one[-9:].tobytes() for one in whole] == [one.tobytes() for one in tail]


def test_the_shape_stays_and_nothing_given_is_written_to() -> None:
    table = numbers(12, 1).reshape(3, 4)
    kept = table.copy()
    parameter, momentum = outer_step(table, table, table, 0.7, 0.9)
    assert (parameter.shape, momentum.shape) == ((3, 4), (3, 4))
    assert np.array_equal(table, kept)


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="float32 and of one shape"):
        outer_step(numbers(3, 1), numbers(3, 1), numbers(4, 1), 0.7, 0.9)
    with pytest.raises(ValueError, match="float32 and of one shape"):
        outer_step(np.ones(3), np.ones(3), np.ones(3), 0.7, 0.9)
