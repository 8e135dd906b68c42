"""One life of a learner in its process: the network thread, the places, the core and its carrier.

Begins it, hands failures of the background to whoever waits, and ends it. The session on top is
what users see.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any, TypeVar, cast

import torch
from torch import nn

from decodiloco.config import Config
from decodiloco.errors import ConfigInvalid, Orphaned
from decodiloco.fragments.of_model import Trained
from decodiloco.learner import joining
from decodiloco.learner.checkpoint import Raw
from decodiloco.learner.copies import Arrays
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.feedback import Coded
from decodiloco.learner.jobs import MomentsJob
from decodiloco.learner.network import Hands, NetworkThread
from decodiloco.learner.state import Checkpoint
from decodiloco.learner.transport import Transport
from decodiloco.learner.waits import Waits
from decodiloco.opening import Opening
from decodiloco.places import Places, open_places
from decodiloco.times import HANG_SECONDS, LIFE_CLOSE_SECONDS, LIFE_MARGIN_SECONDS
from streams.errors import Failure, Trouble
from streams.parts import Moments

T = TypeVar("T")


class Life:
    """From the first connection to the last word. `begin` must succeed before anything else."""

    core: LearnerCore
    _transport: Transport
    _running: Future[None]

    def __init__(self, config: Config, learner: str, places: Places | None) -> None:
        self._config = config
        self._learner = learner
        self._waits = Waits(config.run.name, learner)
        self._network = NetworkThread(f"decodiloco-{learner}")
        self._given = places
        self._opened: Places | None = None

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Checks config and model against the run, loads the run into the model, and joins."""
        places = self._given
        if places is None:
            opening_places = open_places(self._config, f"learner-{self._learner}")
            places = self._opened = self._first("places", self._network.start(opening_places))
        opened = self._first("tape", self._network.start(joining.first_fact(places)))
        hand = Hands(1, "decodiloco-opening")
        try:
            reading = hand.submit(joining.read_opening, places.store, self._config.run, opened)
            opening = self._first("store", reading)
        finally:
            hand.shutdown()
        self._enter(opening, places, model, optimizer)

    def ring(self) -> None:
        """The training thread changed something that the network thread may care about."""
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._network.loop.call_soon_threadsafe(self._transport.changes.ring)

    @property
    def round_heard_seconds(self) -> float:
        """When the newest round was heard of, on this process's monotonic clock."""
        return self._transport.round_heard_seconds

    @property
    def orphaned(self) -> str:
        """Why this life cannot go on for want of a run; empty while it can."""
        seconds_max = self.core.run.times.orphan_seconds_max
        is_silent = self._transport.silent_seconds > seconds_max
        return self._transport.silence() if is_silent else ""

    @property
    def has_farewell_kept(self) -> bool:
        """Whether the inbox has the last word: whoever leads will find it there."""
        return self._transport.has_farewell_kept

    def note(self, event: str, **told: object) -> None:
        """One line of note in the learner's log."""
        self._waits.info(event, **told)

    def check(self) -> None:
        """Raises what ended the background, if it has ended."""
        if self._running.done():
            _raise_failure(self._running)

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Waits until something holds in the core's state, or for so long; whether it holds."""
        try:
            waiting = self._transport.changes.wait(until, seconds)
            limit_seconds = max(0.0, seconds) + LIFE_MARGIN_SECONDS
            return self._until(waiting, min(limit_seconds, threading.TIMEOUT_MAX))
        except TimeoutError:  # the event loop itself is stuck
            return until()

    def end(self) -> None:
        """Stops the background and closes what was opened here, in some seconds at most.

        May be called again.
        """
        if hasattr(self, "_running"):
            self._running.cancel()
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(Failure, TimeoutError):
                self._network.call(opened.close(), LIFE_CLOSE_SECONDS)
        self._network.stop()

    def _first(self, what: str, asked: Future[T]) -> T:
        """What is asked for before there is anything else; a wait for it is told, and bounded."""
        begun_seconds = time.monotonic()
        seconds_max = self._config.run.times.orphan_seconds_max
        while not wait({asked}, HANG_SECONDS).done:
            self._waits.begin(what, f"it has not answered for {HANG_SECONDS:.0f} s")
            if time.monotonic() - begun_seconds > seconds_max:
                asked.cancel()
                raise Orphaned(
                    f"run {self._config.run.name}: the {what} did not answer learner "
                    f"{self._learner} for {seconds_max:.0f} s; see `decodiloco doctor`"
                )
        self._waits.end(what)
        return asked.result()

    def _enter(
        self, opening: Opening, places: Places, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        region = self._config.here.region
        if region not in places.inboxes:
            raise ConfigInvalid(f"run {opening.run.name} has no region {region!r}")
        ours = joining.read_model(model, opening)
        self.core = LearnerCore(opening, self._learner, ours.tensors, optimizer)
        self._transport = Transport(self.core, places, region, self._waits)
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
        found: dict[int, Coded] = {}

        def read(stored: Checkpoint) -> Raw:
            job = MomentsJob(self.core.run.name, stored)
            arrays = cast(Raw, self._until(self._transport.fetch([job]))[0])
            if stored.learner == self._learner:
                found.update(self.core.residuals_in(stored, arrays))
            return arrays

        moments = joining.take_moments(self.core.state, optimizer, ours, read)
        self.core.restore(found if moments.source == "own" else {})
        for one in moments.passed_over:
            self._waits.info(
                "passed over a checkpoint",
                of=one.learner,
                learner_step=one.learner_step,
                reason=one.reason,
            )
        self._waits.info("took moments", source=moments.source, age_steps=moments.age_steps)
        return moments

    def _until(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """The result of a coroutine on the network thread, unless the background fails before."""
        waiting = self._network.start(coroutine)
        self._running.add_done_callback(lambda _: waiting.cancel())
        try:
            return waiting.result(seconds)
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
