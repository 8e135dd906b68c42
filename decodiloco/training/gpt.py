"""A small decoder over bytes: the built-in model. Knows nothing of runs, data or optimizers.

The first parameters are drawn from `model.seed` by a generator of its own. Only the opener's
draw counts: it is stored as bytes, so that other versions of torch need not draw the same.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from decodiloco.config import Model

VOCABULARY = 256
DEVIATION = 0.02


class Attention(nn.Module):
    """Causal self-attention with `heads` heads; (batch, time, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, time, width = hidden.shape
        parts = self.query_key_value(hidden).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        merged: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, time, width))
        return merged


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each on the normed stream and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads)
        self.perceptron_norm = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, stream: Tensor) -> Tensor:
        stream = stream + self.attention(self.attention_norm(stream))
        inner = functional.gelu(self.up(self.perceptron_norm(stream)))
        widened: Tensor = stream + self.down(inner)
        return widened


class Gpt(nn.Module):
    """A decoder over bytes. A tied output layer is the embedding itself, under one name."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.context = model.context
        self.tokens = nn.Embedding(VOCABULARY, model.width)
        self.positions = nn.Embedding(model.context, model.width)
        self.blocks = nn.ModuleList(Block(model.width, model.heads) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.width, bias=False)
        self.head = None if model.tied else nn.Linear(model.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, time, 256) for the token after each of `tokens` (batch, time; int64)."""
        time = tokens.shape[1]
        assert time <= self.context
        stream = self.tokens(tokens) + self.positions.weight[:time]
        for block in self.blocks:
            stream = block(stream)
        matrix = self.tokens.weight if self.head is None else self.head.weight
        return functional.linear(self.norm(stream), matrix)


def build(model: Model) -> Gpt:
    """The decoder with its first parameters, drawn in order of name from `model.seed`.

    Matrices and embeddings are normal with deviation 0.02; the two layers of a block that
    write to the stream are scaled by 1 / sqrt(2 layers), as in GPT-2. Norms begin at one.
    The global random state is as it was. What torch draws by itself is drawn over: to build on its
    meta device draws nothing, but loads torch's compiler, which takes as long as torch itself.
    """
    with torch.random.fork_rng(devices=()):
        gpt = Gpt(model)
    generator = torch.Generator().manual_seed(model.seed)
    with torch.no_grad():
        for name, parameter in sorted(gpt.named_parameters()):
            if parameter.ndim < 2:
                parameter.fill_(1.0)
                continue
            writes = name.endswith(("attention.output.weight", "down.weight"))
            scale = 1 / math.sqrt(2 * model.layers) if writes else 1.0
            parameter.normal_(0.0, DEVIATION * scale, generator=generator)
    return gpt


def batch_loss(gpt: nn.Module, windows: Tensor) -> Tensor:
    """Mean cross-entropy (nats per token) over windows (batch, context + 1; int64)."""
    logits = gpt(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
