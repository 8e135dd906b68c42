"""One learner process of a soak: the built-in model in a paced loop around `decodiloco.join`.

It writes when each step began, and what its inbox acknowledged. A step computes for some
milliseconds and waits for the rest of its pace, so a late step is a stall and not a busy machine.
Never faster than its pace: a stall is not made good by steps that come closer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from decodiloco.config import Config, load_config
from decodiloco.learner import life
from decodiloco.learner.session import Session, join
from decodiloco.places import Places, open_places
from decodiloco.telemetry import configure
from decodiloco.training.corpus import read_corpus
from decodiloco.training.gpt import build
from decodiloco.training.shards import Batches
from decodiloco.training.trainer import adamw, batches_of, seed_draws, train_one_step
from streams.errors import Failure
from streams.inbox import Inbox
from tests.chaos.soak.journal import Journal, JournalledInbox
from tests.chaos.soak.poison import PoisonedInbox

GATE_SECONDS = 0.02


def main(words: Sequence[str] | None = None) -> None:
    asked = _asked(words)
    config = load_config(asked.config, asked.set)
    configure(run=config.run.name, role="learner", id=asked.id)
    try:
        _learn(config, asked)
    except Failure as failure:
        print(f"learner {asked.id}: {type(failure).__name__}: {failure}", file=sys.stderr)
        sys.exit(failure.exit_code)


def _learn(config: Config, asked: argparse.Namespace) -> None:
    run, notice = config.run, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: notice.set())
    torch.set_num_threads(1)
    corpus = read_corpus(run.training, run.model.context)
    gpt = build(run.model)
    optimizer = adamw(gpt, run.training)
    seed_draws(run, asked.id)
    folder = Path(asked.config).parent
    _journal_words(Journal(folder / "journals" / f"inbox-{asked.seat}.jsonl"), asked.poison)
    steps = Journal(folder / "steps" / f"{asked.seat}.jsonl")
    while asked.gate is not None and not asked.gate.exists():
        if notice.wait(GATE_SECONDS):
            return
    with join(config, learner=asked.id, model=gpt, optimizer=optimizer) as session:
        steps.note(life=os.getpid(), incarnation=session.incarnation, at=time.monotonic())
        batches = batches_of(run.training, run.model.context, corpus, session.slot)
        if session.cursor is not None:
            batches.resume(session.cursor)
        step = _Step(gpt, optimizer, batches, run.training.clip)
        _train(session, step, steps, asked.pace, notice)


class _Step:
    """One step of the built-in trainer at a constant rate."""

    def __init__(
        self, gpt: torch.nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, clip: float
    ) -> None:
        self.batches = batches
        self._gpt, self._optimizer, self._clip = gpt, optimizer, clip

    def make(self) -> tuple[float, int]:
        """Loss in nats per token, and tokens."""
        windows = torch.from_numpy(self.batches.take())
        loss = train_one_step(self._gpt, self._optimizer, windows, self._clip)
        return loss, windows[:, 1:].numel()


def _train(
    session: Session, step: _Step, steps: Journal, pace_seconds: float, notice: threading.Event
) -> None:
    due_seconds = time.monotonic()
    while not session.finished:
        notice.wait(max(0.0, due_seconds - time.monotonic()))
        began_seconds = time.monotonic()
        steps.note(at=began_seconds)
        loss, tokens = step.make()
        session.step(tokens=tokens, loss=loss, cursor=step.batches.cursor)
        if notice.is_set():
            session.leave("preempted")
            steps.note(left="preempted", at=time.monotonic())
            return
        due_seconds = max(due_seconds, began_seconds - 0.1 * pace_seconds) + pace_seconds
    steps.note(finished=True, at=time.monotonic())


def _journal_words(journal: Journal, poison: str | None) -> None:
    """From now on a session of this process speaks through inboxes that keep a journal."""

    async def open_journalled(config: Config, name: str) -> Places:
        places = await open_places(config, name)
        inboxes: dict[str, Inbox] = {}
        for region, inbox in places.inboxes.items():
            inboxes[region] = JournalledInbox(inbox, journal)
            if poison is not None:
                inboxes[region] = PoisonedInbox(inboxes[region], places.store, poison)
        return replace(places, inboxes=inboxes)

    assert hasattr(life, "open_places")
    life.open_places = open_journalled


def _asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One learner of a soak.")
    parser.add_argument("--config", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--seat", required=True, help="name of its journals")
    parser.add_argument("--pace", type=float, required=True, help="seconds from step to step")
    parser.add_argument("--poison", choices=("nan", "huge", "shape"))
    parser.add_argument("--gate", type=Path, help="it is ready, but joins once this file is there")
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
