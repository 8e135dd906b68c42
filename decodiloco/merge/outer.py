"""The outer optimizer: SGD with Nesterov momentum on outer gradients (paper section 2)."""

from __future__ import annotations

import numpy as np

from decodiloco.merge import loading
from decodiloco.merge.exact import Floats, rounded


def outer_step(
    parameter: Floats, momentum: Floats, outer_gradient: Floats, lr: float, mu: float
) -> tuple[Floats, Floats]:
    """Take one outer step and return the new parameter and momentum.

        b' = mu b + g
        p' = p - lr (g + mu b')

    This is torch.optim.SGD(nesterov=True) without dampening; momentum zero is its first step.
    All arrays are float32 and of one shape; none is written to.
    Arithmetic as in `outer_chunk`, by the compiled loops once they are there. Raises ValueError for
    other dtypes or unequal shapes.
    """
    arrays = (parameter, momentum, outer_gradient)
    if any(array.dtype != np.float32 or array.shape != parameter.shape for array in arrays):
        raise ValueError("parameter, momentum and outer gradient are float32 and of one shape")
    p, b, g = (np.ascontiguousarray(array).reshape(-1) for array in arrays)
    if not loading.are_ready():
        stepped, moved = outer_chunk(p, b, g, lr, mu)
        return stepped.reshape(parameter.shape), moved.reshape(parameter.shape)
    from decodiloco.merge.compiled import step_piece  # with the loops

    stepped, moved = np.empty_like(p), g.copy()
    step_piece(p, b, moved, 1.0, (rounded(lr), rounded(mu)), stepped)
    return stepped.reshape(parameter.shape), moved.reshape(parameter.shape)


def outer_chunk(
    parameter: Floats, momentum: Floats | None, outer_gradient: Floats, lr: float, mu: float
) -> tuple[Floats, Floats]:
    """The same step on 1-D chunks; momentum None is zeros.

    lr and mu are rounded to float32; b', the look-ahead d and p' are rounded to float32 where
    they are made, each from one product and one sum in float64:

        b' = f32(mu b + g),  d = f32(g + mu b'),  p' = f32(p - lr d)

    Every product is of two float32 values, hence exact: fused or not, the bits are the same.
    """
    rate, decay = rounded(lr), rounded(mu)
    gradient = outer_gradient.astype(np.float64)
    if momentum is None:
        new_momentum = outer_gradient.astype(np.float32)  # a copy: nothing is shared
    else:
        wide = momentum.astype(np.float64)
        np.multiply(wide, decay, out=wide)
        np.add(wide, gradient, out=wide)
        new_momentum = wide.astype(np.float32)
    wide = new_momentum.astype(np.float64)
    np.multiply(wide, decay, out=wide)
    np.add(gradient, wide, out=wide)
    wide[...] = wide.astype(np.float32)
    np.multiply(wide, rate, out=wide)
    np.subtract(parameter.astype(np.float64), wide, out=wide)
    return wide.astype(np.float32), new_momentum
