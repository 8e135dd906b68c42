"""A run by hand whose learners train the built-in decoder as the built-in trainer does.

Production pieces throughout, no clock, thread or server: its tape can be trained again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from decodiloco.config import Run
from decodiloco.fragments.of_model import trained
from decodiloco.learner import joining
from decodiloco.learner.checkpoint import Raw
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.feedback import Coded
from decodiloco.learner.jobs import MomentsJob
from decodiloco.learner.state import Checkpoint
from decodiloco.store.memory import MemoryStore
from decodiloco.training.corpus import Corpus
from decodiloco.training.gpt import Gpt, build
from decodiloco.training.schedule import learning_rate
from decodiloco.training.shards import Batches
from decodiloco.training.trainer import adamw, batches_of, seed_draws, train_one_step
from streams.codec import pack, unpack
from streams.parts import CURSOR_BYTES_MAX
from tests.hand_run import HandRun

CONTEXT = 8
TEXT = (np.arange(9 * 64) * 7 % 251).astype(np.uint8)
CORPUS = Corpus(TEXT, TEXT[:90], b"d" * 32)


def small_run(**settings: object) -> Run:
    """Two fragments, a version every other step, a checkpoint every third."""
    return Run.model_validate(
        {
            "name": "trial",
            "fragments": 2,
            "inner_steps": 4,
            "model": {"layers": 1, "width": 16, "heads": 2, "context": CONTEXT},
            "training": {"shards": 3, "batch_sequences": 2, "checkpoint_steps": 3},
            "end": {"steps": 40},
            **settings,
        }
    )


@dataclass
class Pupil:
    """One life: its model, its optimizer, its place in the text."""

    core: LearnerCore
    gpt: Gpt
    batches: Batches

    def step(self, run: Run) -> None:
        """One step at the rate of the run's clock, as `decodiloco learner` makes it."""
        clock, optimizer = self.core.state.clock, self.core.optimizer
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, clock.step, clock.tokens)
        windows = torch.from_numpy(self.batches.take())
        loss = train_one_step(self.gpt, optimizer, windows, run.training.clip)
        cursor = pack(self.batches.cursor)
        self.core.step(windows[:, 1:].numel(), loss, cursor, step_seconds=1.0)


class TrainedRun(HandRun):
    """Learners by name; `join` again is another life of the same one."""

    def __init__(self, run: Run, corpus: Corpus = CORPUS) -> None:
        super().__init__(run, build(run.model), MemoryStore("trained"))
        self.run = run
        self.corpus = corpus
        self.pupils: dict[str, Pupil] = {}

    def begin(self, learner: str) -> None:
        """A life begins, with the moments that the rules give it."""
        self.kill(learner)
        gpt = build(self.run.model)
        ours = trained(gpt)
        optimizer = adamw(gpt, self.run.training)
        core = LearnerCore(self.opening, learner, ours.tensors, optimizer)
        for envelope in self.tape:
            self.give(core, envelope)
        core.load(self.store, next(self._nonces).to_bytes(16, "big"))

        found: dict[int, Coded] = {}

        def read(stored: Checkpoint) -> Raw:
            arrays = MomentsJob(self.run.name, stored).run_on(self.store)
            if stored.learner == learner:
                found.update(core.residuals_in(stored, arrays))
            return arrays

        moments = joining.take_moments(core.state, optimizer, ours, read)
        core.restore(found if moments.source == "own" else {})
        assert not moments.passed_over
        self.cores.append(core)
        fingerprint = joining.fingerprint(torch.device("cpu"))
        assert self.hear(core.join_word("home", fingerprint, moments)), self.complaints
        assert core.state.joined is not None
        settings = self.run.training
        batches = batches_of(settings, self.run.model.context, self.corpus, core.state.joined.slot)
        if core.state.cursor:
            batches.resume(unpack(core.state.cursor, CURSOR_BYTES_MAX))
        self.pupils[learner] = Pupil(core, gpt, batches)

    def kill(self, learner: str) -> None:
        """A life ends without a word."""
        pupil = self.pupils.pop(learner, None)
        if pupil is not None:
            self.cores.remove(pupil.core)

    def go(self, rounds: int) -> None:
        """So many rounds: all train two steps, offer, merge; what is merged is adopted later."""
        for _ in range(rounds):
            self.open_round()
            for _ in range(2):
                for learner, pupil in self.pupils.items():
                    seed_draws(self.run, learner)  # each has a process of its own
                    pupil.step(self.run)
                self.exchange()
            self.merge()
            for core in self.cores:
                self.work(core)


def played(**settings: object) -> TrainedRun:
    """Three learners; one is killed and comes back, another joins late on borrowed moments."""
    run = TrainedRun(small_run(**settings))
    run.begin("a")
    run.begin("b")
    run.go(5)
    run.kill("b")
    run.go(3)
    run.begin("b")
    run.begin("c")
    run.go(4)
    run.close()
    return run
