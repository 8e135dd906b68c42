"""The built-in trainer: one learner that trains the built-in decoder on its shard of the text.

A plain loop around a session. It must not know the protocol: rounds, deltas and adoptions are
the session's business.
"""

from __future__ import annotations

import random
import time
from typing import NoReturn

import numpy as np
import torch
from blake3 import blake3
from torch import nn

from decodiloco.config import Config, Run, Training
from decodiloco.errors import ConfigInvalid
from decodiloco.learner.session import Session, join
from decodiloco.telemetry import log
from decodiloco.times import LEAVE_SECONDS_MAX, NOTICE_MARGIN_SECONDS, TRAINER_TELL_SECONDS
from decodiloco.training.corpus import Corpus, read_corpus
from decodiloco.training.gpt import Gpt, batch_loss, build
from decodiloco.training.notice import Stop
from decodiloco.training.schedule import learning_rate
from decodiloco.training.shards import Batches, shard_of

BETAS = (0.9, 0.95)


def run_learner(config: Config, learner_id: str) -> None:
    """Trains as `learner_id` until the run is finished or a signal asks it to stop.

    Raises ConfigInvalid when `here.device` cannot be used, AskedWrongly when the text is too
    little, and whatever ends a session. Asked to stop, it ends the process: with exit code 3
    where it could not say so.
    """
    stop = Stop()
    torch.set_num_threads(config.here.threads)
    device = usable_device(config.here.device)
    run = config.run
    corpus = read_corpus(run.training, run.model.context)
    gpt = build(run.model).to(device)
    optimizer = adamw(gpt, run.training)
    seed_draws(run, learner_id)
    with join(config, learner=learner_id, model=gpt, optimizer=optimizer) as session:
        stop.gentle = True
        _train(config, session, gpt, optimizer, corpus, stop)


def _train(
    config: Config,
    session: Session,
    gpt: Gpt,
    optimizer: torch.optim.Optimizer,
    corpus: Corpus,
    stop: Stop,
) -> None:
    run = config.run
    batches = batches_of(run.training, run.model.context, corpus, session.slot)
    if session.cursor is not None:
        batches.resume(session.cursor)
    device = next(gpt.parameters()).device
    gpt.train()
    logger = log("trainer")
    tell_at_seconds = time.monotonic()
    while not session.finished:
        clock = session.clock  # one reading a step: what the tape can tell again
        rate = learning_rate(run, clock.step, clock.tokens)
        for group in optimizer.param_groups:
            group["lr"] = rate
        windows = torch.from_numpy(batches.take()).to(device)
        loss = train_one_step(gpt, optimizer, windows, run.training.clip)
        tokens = windows[:, 1:].numel()
        session.step(tokens=tokens, loss=loss, cursor=batches.cursor)
        if time.monotonic() >= tell_at_seconds:
            logger.info("training", run_step=clock.step, loss=round(loss, 4))
            tell_at_seconds = time.monotonic() + TRAINER_TELL_SECONDS
        if stop.reason is not None:
            _leave(session, stop, run)
    logger.info("finished: this model is the run's last", run_step=session.clock.step)


def _leave(session: Session, stop: Stop, run: Run) -> NoReturn:
    """Says farewell in what is left of the notice, and ends the process."""
    assert stop.reason is not None
    seconds = max(1.0, min(LEAVE_SECONDS_MAX, stop.left_seconds - NOTICE_MARGIN_SECONDS))
    if not session.leave(stop.reason, seconds):
        stop.over(
            3,
            f"run {run.name}: this learner stopped ({stop.reason}), but no inbox took its "
            f"farewell; it counts as lost after {run.times.lost_seconds:.0f} s; the same command "
            "joins again",
        )
    log("trainer").info("left the run; the same command joins again", reason=stop.reason)
    stop.over(0)


def batches_of(training: Training, context: int, corpus: Corpus, slot: int) -> Batches:
    """The batches of the learner that joined as number `slot`: more learners than shards share."""
    shard = slot % training.shards
    windows = shard_of(corpus.training, context, shard, training.shards)
    return Batches(windows, shard, training.batch_sequences)


def adamw(gpt: nn.Module, training: Training) -> torch.optim.AdamW:
    """AdamW that decays matrices and embeddings, and leaves the gains of norms alone."""
    matrices = [parameter for parameter in gpt.parameters() if parameter.ndim >= 2]
    gains = [parameter for parameter in gpt.parameters() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": training.weight_decay},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.lr, betas=BETAS)


def seed_draws(run: Run, learner: str) -> None:
    """Sets the random states of Python, numpy and torch by the run's seed and the learner's id.

    The built-in trainer draws nothing, but its checkpoints hold these states; so they can be made
    again, byte for byte.
    """
    drawn = blake3(b"decodiloco draws 1 %d " % run.model.seed + learner.encode()).digest()
    random.seed(drawn)
    np.random.seed(np.frombuffer(drawn, "<u4"))
    torch.manual_seed(int.from_bytes(drawn[:8], "little") >> 1)


def train_one_step(
    gpt: nn.Module, optimizer: torch.optim.Optimizer, windows: torch.Tensor, clip: float
) -> float:
    """One step on windows (sequences, context + 1); the loss before it, in nats per token."""
    loss = batch_loss(gpt, windows)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)  # what loss.backward() calls, with types
    nn.utils.clip_grad_norm_(gpt.parameters(), clip)
    optimizer.step()
    return float(loss.detach())


def usable_device(name: str) -> torch.device:
    """The device of this name, tried out. Raises ConfigInvalid when it is not here.

    A name that torch does not know, or a driver that is missing, is a RuntimeError to it; a build
    without that backend an AssertionError; a backend that lacks an operation NotImplementedError.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).add_(1).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first_line = str(error).strip().splitlines()[0][:160]
        raise ConfigInvalid(
            f"here.device {name!r} cannot be used on this machine ({first_line}); "
            "use 'cpu', or name one that is here, such as 'cuda'"
        ) from None
    return device
