"""Live tensors copied to host memory as float32 arrays. Knows tensors and names, no protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Arrays = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class HostCopy:
    """One fragment at a boundary: its arrays, and those of the anchor it is compared with.

    Nobody writes into them: uploads and later boundaries share this memory.
    """

    base: Arrays
    live: Arrays


def copied(parameters: Mapping[str, torch.Tensor], names: Iterable[str]) -> Arrays:
    """The named tensors as they stand now: float32, on the host, memory of their own.

    Every bfloat16 and float16 value is a float32 value, so nothing is rounded.
    """
    return {
        name: parameters[name]
        .detach()
        .to(device="cpu", dtype=torch.float32, copy=True)
        .contiguous()
        .numpy()
        for name in names
    }
