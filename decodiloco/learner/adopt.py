"""Merged fragments put into live parameters, between two steps, on the training thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from decodiloco.errors import BlobCorrupt
from decodiloco.learner.copies import Arrays


def write(parameters: Mapping[str, torch.Tensor], merged: Arrays, alpha: float) -> Arrays:
    """Blends merged tensors into the live ones and returns the new anchor.

    live <- alpha * live + (1 - alpha) * merged, in float32, then rounded to the live dtype;
    alpha = 0 overwrites (paper section D.1). The anchor is what the live tensor then holds, as
    float32. It may be the merged arrays themselves, which nobody writes into.
    """
    anchor: Arrays = {}
    with torch.no_grad():
        for name, array in merged.items():
            live = parameters[name]
            new = torch.from_numpy(array)
            _check_shape(name, new, live)
            if alpha:
                kept = live.detach().to(device="cpu", dtype=torch.float32)
                new = alpha * kept + (1 - alpha) * new
            if live.dtype != torch.float32:
                new = new.to(live.dtype).to(torch.float32)
            live.copy_(new)
            anchor[name] = new.numpy()
    return anchor


def add(parameters: Mapping[str, torch.Tensor], merged: Arrays, since: Arrays) -> None:
    """Carries progress over: live <- merged + (live - since), in float32, then the live dtype."""
    with torch.no_grad():
        for name, array in merged.items():
            live = parameters[name]
            now = live.detach().to(device="cpu", dtype=torch.float32)
            live.copy_(torch.from_numpy(array) + (now - torch.from_numpy(since[name])))


def rounded(parameters: Mapping[str, torch.Tensor], arrays: Arrays) -> Arrays:
    """Float32 arrays as the live tensors would hold them, in memory of their own."""
    found: Arrays = {}
    for name, array in arrays.items():
        live, new = parameters[name], torch.from_numpy(array)
        _check_shape(name, new, live)
        found[name] = new.to(live.dtype).to(torch.float32, copy=True).numpy()
    return found


def zero_moments(optimizer: torch.optim.Optimizer) -> None:
    """Zeroes all that the inner optimizer remembers: every tensor and number of its state."""
    with torch.no_grad():
        for state in optimizer.state.values():
            for key, value in list(state.items()):
                state[key] = _zeroed(value)


def _check_shape(name: str, new: torch.Tensor, live: torch.Tensor) -> None:
    if new.shape != live.shape:
        raise BlobCorrupt(f"{name}: a merged tensor of {new.shape} for {live.shape}")


def _zeroed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.zero_()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(value)(0)
    return value
