"""The loss of given parameters on held-out text: deterministic, in float32. Knows no run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import nn

from decodiloco.errors import LayoutDiffers
from decodiloco.training.corpus import Corpus
from decodiloco.training.gpt import Gpt

SEQUENCES = 16


def held_out_loss(gpt: Gpt, corpus: Corpus, tokens: int, sequences: int = SEQUENCES) -> float:
    """Mean cross-entropy (nats per token) on about `tokens` tokens of the held-out text.

    Reads whole windows at even distances over all of the text, the same ones each time. Each
    token's loss is float32, their sum float64, so `sequences` (read at once) moves the result
    by no more than a float32 rounding.
    """
    windows = _windows(corpus, gpt.context, tokens)
    device = next(gpt.parameters()).device
    total = 0.0
    was_training = gpt.training
    gpt.eval()
    with torch.no_grad():
        for first in range(0, len(windows), sequences):
            batch = torch.from_numpy(windows[first : first + sequences].astype(np.int64))
            batch = batch.to(device)
            logits = gpt(batch[:, :-1]).float().flatten(0, 1)
            losses = functional.cross_entropy(logits, batch[:, 1:].flatten(), reduction="none")
            total += float(losses.double().sum())
    gpt.train(was_training)
    return total / (len(windows) * gpt.context)


def _windows(corpus: Corpus, context: int, tokens: int) -> NDArray[np.uint8]:
    """Rows of context + 1 tokens at even distances; no token is predicted twice."""
    held_out = corpus.held_out
    available = (len(held_out) - 1) // context
    assert available >= 1, "read_corpus checks that there is one window"
    count = min(max(1, tokens // context), available)
    last = len(held_out) - context - 1
    starts = [last * index // max(1, count - 1) for index in range(count)]
    return np.stack([held_out[start : start + context + 1] for start in starts])


def parameters_into(module: nn.Module, parameters: Mapping[str, np.ndarray]) -> None:
    """Writes arrays into the module's parameters of the same names, cast to their dtype.

    A tied parameter may be named by any of its names. Raises LayoutDiffers when a name is
    unknown, a shape differs, or a parameter is left without a value.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    unknown = sorted(set(parameters) - set(named))
    if unknown:
        raise LayoutDiffers(f"the model has no parameter {unknown[0]!r}")
    written = set()
    with torch.no_grad():
        for name, array in parameters.items():
            parameter = named[name]
            if tuple(parameter.shape) != array.shape:
                raise LayoutDiffers(
                    f"{name}: the model's shape is {tuple(parameter.shape)}, not {array.shape}"
                )
            parameter.copy_(torch.tensor(array))
            written.add(id(parameter))
    missing = sorted(name for name, parameter in named.items() if id(parameter) not in written)
    if missing:
        raise LayoutDiffers(f"no value is given for the model's parameter {missing[0]!r}")
