"""A run in memory with real sessions: threads, pulse and inbox, and at will its syncer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import torch
from torch import nn

import decodiloco
from decodiloco.config import Config, parse_config
from decodiloco.learner.network import NetworkThread
from decodiloco.learner.session import Session, join
from decodiloco.places import Places
from decodiloco.store.memory import memory_store
from decodiloco.syncer.service import run_syncer
from streams.codec import seal
from streams.envelope import Envelope
from streams.events import Event
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from streams.tape import Outcome, Stored
from tests.hand_run import train_plainly

_runs = count(1)


def config_of(end_steps: int | None = None, **settings: object) -> Config:
    times = {"takeover_seconds": 0.2, "heartbeat_seconds": 0.05, "lost_seconds": 2.0}
    run = {
        "name": f"trial{next(_runs)}",
        "fragments": 2,
        "inner_steps": 2,
        "times": times,
        "window": {"step_seconds": 0.01, "upload_seconds": 0.01},
        "end": {"steps": end_steps} if end_steps else {},
        **settings,
    }
    return parse_config({"run": run, "here": {"store": "memory://unused"}})


class Cluster:
    """A run in memory, opened with a model, and at will its syncer."""

    def __init__(self, config: Config, model: nn.Module) -> None:
        self.config = config
        run = config.run.name
        self.tape = MemoryTape(run)
        self.places = Places(
            self.tape, {"home": MemoryInbox(run)}, MemoryPulse(run), memory_store(run)
        )
        self.learner_places = self.places
        decodiloco.open_run(config, model, self.places)

    def join(self, learner: str, model: nn.Module) -> tuple[Session, torch.optim.Optimizer]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return join(self.config, learner, model, optimizer, self.learner_places), optimizer

    @contextmanager
    def syncer(self) -> Iterator[None]:
        network = NetworkThread("syncer")
        running = network.start(run_syncer(self.config, "s", self.places))
        try:
            yield
        finally:
            running.cancel()
            network.stop()

    def records(self) -> list[Envelope]:
        network = NetworkThread("reader")
        try:
            return network.call(self.tape.read(0, 100_000))
        finally:
            network.stop()

    def append(self, event: Event) -> None:
        """A fact in the leading syncer's name, behind all that it has written so far."""
        network = NetworkThread("writer")
        try:
            outcome: Outcome | None = None
            while not isinstance(outcome, Stored):
                last = network.call(self.tape.read(0, 100_000))[-1]
                envelope = seal(
                    last.position + 1, last.digest, last.fence, last.writer, None, 0.0, event
                )
                outcome = network.call(self.tape.append([envelope]))
        finally:
            network.stop()

    def facts(self, kind: type) -> list[object]:
        return [record.event for record in self.records() if isinstance(record.event, kind)]


def step(session: Session, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    loss = train_plainly(model, optimizer, seed)
    session.step(tokens=8, loss=loss, cursor={"at": seed})
