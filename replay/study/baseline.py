"""Elastic data parallelism trained for real: one job whose batch shrinks with its lost slices.

The same model, text, optimizer and number of tokens as the learners have. Knows no tape and no
clock: how many sequences each step trains is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from decodiloco.config import Run
from decodiloco.training.corpus import Corpus
from decodiloco.training.evaluation import held_out_loss
from decodiloco.training.gpt import build
from decodiloco.training.schedule import learning_rate
from decodiloco.training.trainer import adamw, batches_of, train_one_step


def train(
    run: Run, corpus: Corpus, sequences: Sequence[int], evaluations: int
) -> list[tuple[int, float]]:
    """Trains these steps; the held-out loss by tokens trained, first and last step among them."""
    gpt = build(run.model)
    optimizer = adamw(gpt, run.training)
    batches = batches_of(run.training, run.model.context, corpus, 0)
    gpt.train()
    every = max(1, len(sequences) // evaluations)
    losses: list[tuple[int, float]] = []
    tokens = 0
    for step, count in enumerate(sequences):
        if step % every == 0:
            losses.append((tokens, held_out_loss(gpt, corpus, run.training.evaluate_tokens)))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, 0, tokens)
        windows = torch.from_numpy(batches.take()[:count])
        train_one_step(gpt, optimizer, windows, run.training.clip)
        tokens += count * run.model.context
    losses.append((tokens, held_out_loss(gpt, corpus, run.training.evaluate_tokens)))
    return losses
