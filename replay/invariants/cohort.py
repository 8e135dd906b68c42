"""Whether merged deltas belong together, and the robust rules, plainly from all numbers. Pure.

An account of its own of the gates that hold deltas against each other, for three and more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import numpy.typing as npt

from decodiloco.config import Gates
from streams.parts import LeftOut

ROUNDING = 1e-3  # of a cosine, and a share of a norm: what is so close to a limit proves nothing
FEW = 3

Wide = npt.NDArray[np.float64]

Deltas = Sequence[dict[str, npt.NDArray[np.float32]]]


def stranger(
    deltas: Deltas, steps: Sequence[int], gates: Gates, left_out: Sequence[LeftOut]
) -> str:
    """Why one of these merged deltas should have been left out; empty if none should."""
    if len(deltas) < FEW:
        return ""
    vectors = [
        np.concatenate([delta[name].reshape(-1) for name in sorted(delta)]).astype(np.float64)
        for delta in deltas
    ]
    norms = [float(np.linalg.norm(vector)) for vector in vectors]
    if gates.norm_extreme != "none":
        paces = [norm / count for norm, count in zip(norms, steps, strict=True)]
        known = [pace for pace in paces if pace > 0.0]
        if known and max(known) > gates.norm_extreme * median(known) * (1 + ROUNDING):
            return (
                f"a delta of norm {max(known):.3g} a step is merged; {median(known):.3g} is usual"
            )
    gone = sum(each.reason.startswith(("direction", "extreme norm")) for each in left_out)
    if gates.direction == "none" or gone + 1 > (len(deltas) + gone - 1) // 2:
        return ""
    units = [vector / norm for vector, norm in zip(vectors, norms, strict=True) if norm > 0.0]
    if len(units) < FEW:
        return ""
    cosines = np.array([[one @ other for other in units] for one in units])
    least = max(0.1, 4.0 / math.sqrt(vectors[0].size)) + ROUNDING
    for place in range(len(units)):
        others = np.delete(np.delete(cosines, place, 0), place, 1)
        rest = float(np.mean(others[np.triu_indices(len(others), 1)]))
        own = float(np.mean(np.delete(cosines[place], place)))
        if rest >= least and own < -gates.direction * rest - ROUNDING:
            return f"a delta of cosine {own:.3f} with the others is merged, {rest:.3f} among them"
    return ""


def trimmed(deltas: Sequence[Wide], shares: Sequence[float]) -> Wide:
    """For each number the weighted mean without as many of the least and of the greatest."""
    table = np.stack(deltas)
    order = np.argsort(table, axis=0, kind="stable")
    gone = (len(deltas) + 1) // 4
    kept = slice(gone, len(deltas) - gone)
    values = np.take_along_axis(table, order, axis=0)[kept]
    weights = np.array(shares)[order][kept]
    mean: Wide = (weights * values).sum(axis=0) / weights.sum(axis=0)
    return mean


def geometric_median(deltas: Sequence[Wide], shares: Sequence[float]) -> Wide:
    """Weiszfeld's steps as they are written, on the deltas themselves."""
    least = 2.0**-20 * max(float(np.linalg.norm(delta)) for delta in deltas)
    middle: Wide = np.sum([w * delta for w, delta in zip(shares, deltas, strict=True)], axis=0)
    for _ in range(32 if least > 0.0 else 0):
        pulls = [
            w / max(float(np.linalg.norm(delta - middle)), least)
            for w, delta in zip(shares, deltas, strict=True)
        ]
        middle = np.sum([p * delta for p, delta in zip(pulls, deltas, strict=True)], axis=0)
        middle = middle / sum(pulls)
    return middle


ROBUST: dict[str, Callable[[Sequence[Wide], Sequence[float]], Wide]] = {
    "trimmed": trimmed,
    "median": geometric_median,
}
