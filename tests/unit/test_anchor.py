"""The anchor of the whole: one learner without latency is plain training, bit for bit.

K = 1, mean, outer rate 1, no momentum, float32. At each version the merged fragment is
float32(a - float32(a - p)), a being the anchor: a difference taken and added back is not always
p, so the plain loop does the same. Without it, the two agree within 1e-6.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from decodiloco.config import Config, parse_config
from decodiloco.fragments.layout import Layout
from decodiloco.fragments.of_model import trained
from decodiloco.learner.core import ZERO_MOMENTS, LearnerCore
from decodiloco.opening import Opening
from decodiloco.places import Places
from decodiloco.syncer.carrying import carry
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.drafting import Waited, from_letter, from_timed
from decodiloco.syncer.follower import load_opening
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import CloseWindow, MergeFragment, OpenRound, owed
from streams.codec import encode_event
from streams.envelope import Source
from streams.events import RunOpened, Word, speaker_of
from streams.inbox import Letter
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from tests.builders import took_over

FRAGMENTS, STEPS = 3, 40


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    random = np.random.Generator(np.random.Philox(7))
    while True:
        yield tuple(  # type: ignore[misc]
            torch.from_numpy(random.standard_normal((8, width), dtype=np.float32))
            for width in (12, 4)
        )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple) -> float:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.item()


def config_of(name: str, **settings: object) -> Config:
    run = {
        "name": name,
        "fragments": FRAGMENTS,
        "inner_steps": FRAGMENTS,
        "merge": {"rule": "mean", "embedding_rule": "mean"},
        "outer": {"lr": 1.0, "momentum": 0.0},
        "codecs": {"delta": "fp32"},
        "training": {"checkpoint_steps": 10_000},
        **settings,
    }
    return parse_config({"run": run, "here": {"store": f"memory://{name}"}})


class Cluster:
    """One learner's core and the syncer's machine, on one thread, without latency."""

    def __init__(self, name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from decodiloco.open_run import open_run
        from decodiloco.store.blobs import open_store

        config = config_of(name)
        self.places = Places(
            MemoryTape(name),
            {"home": MemoryInbox(name)},
            MemoryPulse(name),
            open_store(config.here.store),
        )
        open_run(config, model, self.places)
        (first,) = asyncio.run(self.places.tape.read(0))
        assert isinstance(first.event, RunOpened)
        self.opening: Opening = load_opening(self.places, first.event)
        self.state = fold(begin(self.opening), first)
        self.core = LearnerCore(self.opening, "a", trained(model).tensors, optimizer)
        self.core.fold(first)
        self.sequence = 0
        self.write(Draft(lambda _: took_over()))
        self.core.load(self.places.store, b"n" * 16)
        self.say(self.core.join_word("home", "", ZERO_MOMENTS))

    def write(self, draft: Draft) -> None:
        for envelope in compose(self.state, [draft], Pen("syncer-1", 1), time.time()):
            self.state = fold(self.state, envelope)
            self.core.fold(envelope)

    def say(self, word: Word) -> None:
        self.sequence += 1
        source = Source("home", "life", self.sequence)
        letter = Letter(source, speaker_of(word), word.kind, encode_event(word))
        self.write(from_letter(letter, lambda _, verdict: pytest.fail(str(verdict))))

    def serve(self, *kinds: type) -> None:
        """Carries out what the syncer owes of these kinds, until nothing is left."""
        while asks := [ask for ask in owed(self.state) if isinstance(ask, kinds)]:
            ask = asks[0]
            if isinstance(ask, MergeFragment):
                self.write(carry(self.places, self.state, ask))
            else:
                assert isinstance(ask, (OpenRound, CloseWindow))
                self.write(from_timed(ask, Waited(), "syncer-1"))
            if isinstance(ask, OpenRound):
                return

    def boundary(self, loss: float) -> None:
        """After an inner step: copy, offer, merge and adopt, all at this one moment."""
        self.core.step(64, loss)
        self.core.work(self.places.store)
        while (word := self.core.say()) is not None:
            self.say(word)
        self.serve(CloseWindow, MergeFragment)
        self.core.work(self.places.store)
        self.core.adopt()


class Plain:
    """A plain loop. With `rounding`, it does at each version what taking a delta does."""

    def __init__(self, layout: Layout, model: nn.Module, rounding: bool) -> None:
        self.layout, self.model, self.rounding = layout, model, rounding
        self.optimizer = optimizer_of(model)
        self.tensors = trained(model).tensors
        self.anchors = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def step(self, batch: tuple, fragment: int) -> None:
        train(self.model, self.optimizer, batch)
        if not self.rounding:
            return
        for tensor in self.layout.of(fragment):
            live, anchor = self.tensors[tensor.name].detach(), self.anchors[tensor.name]
            live.copy_(anchor - (anchor - live))
            self.anchors[tensor.name] = live.clone()


def test_one_learner_without_latency_is_plain_training_bit_for_bit() -> None:
    model = model_of(1)
    optimizer = optimizer_of(model)
    cluster = Cluster("anchor", model, optimizer)
    layout = cluster.opening.layout
    exact = Plain(layout, model_of(1), rounding=True)
    close = Plain(layout, model_of(1), rounding=False)
    data = batches()
    for step in range(STEPS):
        batch = next(data)
        cluster.serve(OpenRound)
        cluster.boundary(train(model, optimizer, batch))
        exact.step(batch, step % FRAGMENTS)
        close.step(batch, step % FRAGMENTS)
        for name, tensor in trained(model).tensors.items():
            assert torch.equal(tensor, exact.tensors[name]), f"step {step}, {name}"
    assert cluster.state.step == STEPS
    assert min(cluster.state.versions) >= STEPS // FRAGMENTS
    rounded = 0
    for name, tensor in trained(model).tensors.items():
        torch.testing.assert_close(tensor, close.tensors[name], rtol=0, atol=1e-6)
        rounded += int((tensor != close.tensors[name]).sum())
    assert rounded > 0, "the rounding of deltas is real: the test must be able to see it"


def test_nothing_is_lost_on_the_way() -> None:
    model = model_of(2)
    optimizer = optimizer_of(model)
    cluster = Cluster("nothing-lost", model, optimizer)
    data = batches()
    for _ in range(STEPS):
        cluster.serve(OpenRound)
        cluster.boundary(train(model, optimizer, next(data)))
    learner = cluster.state.learners["a"]
    for fragment in range(FRAGMENTS):
        fates = learner.fates(fragment)
        assert fates["merged"] + fates["open"] == learner.tokens_trained
        assert sum(fates.values()) == learner.tokens_trained
