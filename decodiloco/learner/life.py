"""One life of a learner in its process: the network thread, the places, the core and its carrier.

Begins it, hands failures of the background to whoever waits, and ends it. The session on top is
what users see.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar, cast

import torch
from torch import nn

from decodiloco.config import Config
from decodiloco.errors import ConfigInvalid
from decodiloco.fragments.of_model import Trained
from decodiloco.learner import joining
from decodiloco.learner.copies import Arrays
from decodiloco.learner.core import ZERO_MOMENTS, LearnerCore
from decodiloco.learner.jobs import CheckpointJob
from decodiloco.learner.network import NetworkThread
from decodiloco.learner.transport import Transport
from decodiloco.opening import Opening
from decodiloco.places import Places, open_places
from streams.errors import Failure, Trouble
from streams.events import Moments

T = TypeVar("T")


class Life:
    """From the first connection to the last word. `begin` must succeed before anything else."""

    core: LearnerCore
    _transport: Transport
    _running: Future[None]

    def __init__(self, config: Config, learner: str, places: Places | None) -> None:
        self._config = config
        self._learner = learner
        self._network = NetworkThread(f"decodiloco-{learner}")
        self._given = places
        self._opened: Places | None = None

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Checks config and model against the run, loads the run into the model, and joins."""
        places = self._given
        if places is None:
            opening_places = open_places(self._config, f"learner-{self._learner}")
            places = self._opened = self._network.call(opening_places)
        opened = self._network.call(joining.first_fact(places))
        opening = joining.read_opening(places.store, self._config.run, opened)
        self._enter(opening, places, model, optimizer)

    def ring(self) -> None:
        """The training thread changed something that the network thread may care about."""
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._network.loop.call_soon_threadsafe(self._transport.changes.ring)

    @property
    def round_heard_seconds(self) -> float:
        """When the newest round was heard of, on this process's monotonic clock."""
        return self._transport.round_heard_seconds

    def check(self) -> None:
        """Raises what ended the background, if it has ended."""
        if self._running.done():
            _raise_failure(self._running)

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Waits until something holds in the core's state, or for so long; whether it holds."""
        return self._until(self._transport.changes.wait(until, seconds))

    def store_checkpoint(self) -> None:
        """Stores the inner state as it stands, as well as it can be done now."""
        state = self.core.state
        job = CheckpointJob(
            self.core.run.name, self._learner, state.learner_step, state.step, self.core.capture()
        )
        with suppress(Failure):
            job.run_on(self._transport.store)

    def end(self) -> None:
        """Stops the background and closes what was opened here. May be called again."""
        if hasattr(self, "_running"):
            self._running.cancel()
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(Failure):
                self._network.call(opened.close())
        self._network.stop()

    def _enter(
        self, opening: Opening, places: Places, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        region = self._config.here.region
        if region not in places.inboxes:
            raise ConfigInvalid(f"run {opening.run.name} has no region {region!r}")
        ours = joining.read_model(model, opening)
        self.core = LearnerCore(opening, self._learner, ours.tensors, optimizer)
        self._transport = Transport(self.core, places, region)
        self._running = self._network.start(self._transport.run())
        self._until(self._transport.catch_up())
        self._load()
        moments = self._take_moments(optimizer, ours)
        if not self.core.state.closed:
            device = next(iter(ours.tensors.values())).device
            self._until(self._transport.join(joining.fingerprint(device), moments))
            if not self.core.state.incarnation:
                self._load()  # the run was closed while we joined

    def _load(self) -> None:
        jobs = self.core.newest()
        results = self._until(self._transport.fetch(jobs))
        self.core.loaded(jobs, cast("list[Arrays]", results), secrets.token_bytes(16))

    def _take_moments(self, optimizer: torch.optim.Optimizer, ours: Trained) -> Moments:
        for stored, moments in joining.candidates(self.core.state):
            arrays = joining.read_checkpoint(self._transport.store, self.core.run.name, stored)
            is_own = moments.source == "own"
            if arrays is not None and joining.restore(optimizer, ours, arrays, is_own):
                return moments
        return ZERO_MOMENTS

    def _until(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the network thread, unless the background fails before."""
        waiting = self._network.start(coroutine)
        self._running.add_done_callback(lambda _: waiting.cancel())
        try:
            return waiting.result()
        except CancelledError:
            _raise_failure(self._running)
            raise
        except BaseException:
            waiting.cancel()
            raise


def _raise_failure(running: Future[None]) -> None:
    """Raises the first thing that went wrong, out of its groups."""
    error = None if running.cancelled() else running.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    raise error or Trouble("the connection to the run was closed")
