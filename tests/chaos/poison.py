"""What one bad learner of four does to a run: `python -m tests.chaos.poison [--seeds 3]`.

A small decoder is really trained on the standard library's text by production learners and merged
by the production syncer's machine, without clocks or servers. One learner sends deltas that are a
thousand times too long, reversed, or random ones of the right length. One line a run: the loss on
held-out text, what became of the bad learner, and whether an honest one was ever left out.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from decodiloco.config import Run
from decodiloco.learner.copies import Arrays, HostCopy
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.jobs import OfferJob
from decodiloco.syncer import drafting
from decodiloco.syncer.owed import DeclareLost
from decodiloco.training.corpus import Corpus, read_corpus
from decodiloco.training.evaluation import held_out_loss, parameters_into
from decodiloco.training.gpt import build
from streams.events import FragmentMerged, LearnerLost, MergeAbandoned
from tests.hand_run import NOW
from tests.trained_run import TrainedRun

LEARNERS, BAD = "abcd", "d"
WAYS = ("1000x", "flipped", "random")
ROUNDS = 60
OFF = {"direction": "none", "norm_extreme": "none", "strikes": 0}
EVALUATE_TOKENS = 16_384


def poisoned(way: str, copy: HostCopy, seed: int) -> HostCopy:
    """A copy whose delta is not what was trained; "" leaves it alone."""
    draw = np.random.default_rng(seed)
    live: Arrays = {}
    for name, base in copy.base.items():
        delta = base - copy.live[name]
        if way == "1000x":
            delta = delta * np.float32(1000)
        elif way == "flipped":
            delta = -delta
        elif way == "random":
            noise = draw.standard_normal(delta.shape).astype(np.float32)
            delta = noise * (np.linalg.norm(delta) / np.linalg.norm(noise))
        live[name] = base - delta
    return replace(copy, live=live)


class PoisonedRun(TrainedRun):
    """A run one of whose learners spoils each of its deltas; who is quarantined stops."""

    def __init__(self, run: Run, corpus: Corpus, way: str) -> None:
        super().__init__(run, corpus)
        self.way = way

    def work(self, core: LearnerCore) -> None:
        """A learner's transfers, with its deltas as they are or as they are spoilt."""
        while jobs := core.jobs():
            for job in jobs:
                made = job
                if self.way and core.state.learner == BAD and isinstance(job, OfferJob):
                    place = f"{self.run.model.seed} {job.ask.round}"
                    seed = zlib.crc32(place.encode())
                    made = replace(job, copy=poisoned(self.way, job.copy, seed))
                core.done(job, made.run_on(self.store), 0.0)

    def merge(self) -> None:
        """Merges, and turns away whoever has had its strikes."""
        super().merge()
        for ask in self.asks(DeclareLost):
            if isinstance(ask, DeclareLost) and ask.reason == "quarantined":
                assert self.draft(drafting.from_timed(ask, NOW, "s"))
                self.kill(ask.learner)

    def loss(self) -> float:
        """Of the merged model, on held-out text."""
        gpt = build(self.run.model)
        parameters: Arrays = {}
        for fragment in range(len(self.state.fragments)):
            parameters.update(self.merged(fragment))
        parameters_into(gpt, parameters)
        return held_out_loss(gpt, self.corpus, EVALUATE_TOKENS)


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one run. `left_out` counts offers by learner; `why` is of the quarantine."""

    loss: float
    left_out: dict[str, int]
    merged: dict[str, int]
    quarantined: dict[str, int]
    why: str


def settings_of(seed: int, gates: bool) -> Run:
    """A decoder of 100,000 parameters, four fragments, a version each eight steps."""
    return Run.model_validate(
        {
            "name": "trial",
            "fragments": 4,
            "inner_steps": 8,
            "outer": {"lr": 0.7, "momentum": 0.5},
            "merge": {} if gates else {"norm_clip": "none"},
            "gates": {} if gates else OFF,
            "model": {"layers": 2, "width": 64, "heads": 2, "context": 64, "seed": seed},
            "training": {"shards": 8 + 4 * seed, "batch_sequences": 8, "lr": 4e-3},
            "end": {"steps": ROUNDS},
        }
    )


def played(way: str, seed: int, gates: bool, learners: str = LEARNERS) -> Told:
    """One run to its end."""
    run = settings_of(seed, gates)
    poisoned_run = PoisonedRun(run, read_corpus(run.training, run.model.context), way)
    for name in learners:
        poisoned_run.begin(name)
    poisoned_run.go(ROUNDS)
    return told_of(poisoned_run)


def told_of(run: PoisonedRun) -> Told:
    """What the tape of a run says of its learners."""
    offers = {e.position: e.event.learner for e in run.tape if e.event.kind == "delta_offered"}
    left_out, merged = dict.fromkeys(LEARNERS, 0), dict.fromkeys(LEARNERS, 0)
    quarantined: dict[str, int] = {}
    why, step = "", 0
    for envelope in run.tape:
        event = envelope.event
        if isinstance(event, FragmentMerged):
            step = event.step
            for position in event.contributions:
                merged[offers[position]] += 1
        if isinstance(event, FragmentMerged | MergeAbandoned):
            for each in event.left_out:
                left_out[offers[each.position]] += 1
        if isinstance(event, LearnerLost) and event.reason == "quarantined":
            quarantined[event.learner], why = step, event.why
    return Told(run.loss(), left_out, merged, quarantined, why)


def lines(seeds: int) -> Iterator[str]:
    """One a run; losses are also told against the run without the poison."""
    for seed in range(seeds):
        clean = played("", seed, True)
        yield _line(seed, "clean, four learners", clean, clean.loss)
        yield _line(seed, "clean, three learners", played("", seed, True, "abc"), clean.loss)
        for way in WAYS:
            yield _line(seed, f"{way}, default gates", played(way, seed, True), clean.loss)
            yield _line(seed, f"{way}, no gates, no clip", played(way, seed, False), clean.loss)


def _line(seed: int, what: str, told: Told, clean: float) -> str:
    honest = sum(count for name, count in told.left_out.items() if name != BAD)
    out = ", ".join(f"{name} at step {step}" for name, step in told.quarantined.items())
    return (
        f"seed {seed}  {what:<26} loss {told.loss:7.3f} ({100 * (told.loss / clean - 1):+7.1f} %)  "
        f"of {BAD} merged {told.merged[BAD]:>2}, left out {told.left_out[BAD]:>2}; of the others "
        f"left out {honest}; quarantined: {out or 'nobody'} {told.why}"
    )


def main() -> None:
    """Plays and prints all of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    torch.set_num_threads(1)
    for line in lines(parser.parse_args().seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
