"""What a learner did to a fragment, as a blob: anchor minus live parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decodiloco.learner.copies import Arrays, HostCopy
from decodiloco.learner.feedback import Coded, encode_keeping, with_residuals
from decodiloco.store.tensors import Encoded, encode_tensors


def delta_of(copy: HostCopy) -> Arrays:
    """delta = anchor - live, per tensor, in float32 (paper section D.2).

    The anchor is what stood in the live tensor after the last adoption, so that a fragment
    without training has a delta of exactly zero, whatever the tensor's dtype.
    """
    copy.wait()
    with np.errstate(all="ignore"):  # what is not finite is judged by the merge, and recorded
        return {name: np.subtract(copy.base[name], live) for name, live in copy.live.items()}


def made_delta(
    copy: HostCopy, codec: str, residuals: Sequence[Coded] | None = None
) -> tuple[Encoded, Coded | None]:
    """The delta in the run's codec; its header carries each tensor's sum of squares.

    With `residuals`, be it none of them, these are in it, and it has a residual of its own.
    """
    delta = delta_of(copy)
    if residuals is None:
        return encode_tensors(delta, codec, squares=True), None
    return encode_keeping(with_residuals(delta, residuals, codec), codec)
