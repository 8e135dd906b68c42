"""What a learner of the world does beside its training: deltas and checkpoints up, versions down.

Jobs take time, fail and are tried again as in `decodiloco.learner.transport`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from decodiloco.learner.feedback import encode_keeping, to_arrays, with_residuals
from decodiloco.learner.happenings import (
    CheckpointFailed,
    CheckpointSaved,
    FetchBegun,
    Fetched,
    FetchFailed,
    OfferBegun,
    OfferFailed,
    OfferStored,
)
from decodiloco.learner.owed import owed_beside
from decodiloco.learner.residuals import in_use, of, to_store
from decodiloco.learner.state import Copy, Fetch, Offer
from decodiloco.store.keys import checkpoint_key, delta_key, global_key
from decodiloco.store.tensors import Encoded, encode_raw, encode_tensors
from decodiloco.times import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN
from replay.world.model import Arrays, delta_of
from streams.errors import Corrupt, Failure

if TYPE_CHECKING:
    from replay.world.learner import LearnerProcess

CORRUPT_READS_MAX = 3
CHECKPOINT_TRIES_MAX = 8


class Jobs:
    """The jobs of one life."""

    def __init__(self, learner: LearnerProcess) -> None:
        self._learner, self._world = learner, learner.world

    def begin(self) -> None:
        """Starts what is owed beside training."""
        learner = self._learner
        for ask in owed_beside(learner.state):
            if isinstance(ask, Fetch):
                learner.tell(FetchBegun(ask.fragment, ask.version))
                self._fetch(ask)
            else:
                learner.tell(OfferBegun(ask.round, ask.copy))
                self._offer(ask)

    def checkpoint(self, learner_step: int) -> None:
        """Stores the inner state of this step; here only its number, and the residuals."""
        learner = self._learner
        step, kept = learner.state.step, to_store(learner.state)
        held = tuple(one.position for one in kept)
        residuals = to_arrays(dict(zip(held, learner.kept.of(kept), strict=True)))
        blob = encode_raw({"step": np.array([learner_step], np.int64), **residuals})
        key = checkpoint_key(self._world.run, learner.case.id, learner_step, blob.manifest)

        def saved(seconds: float) -> None:
            self._world.point(learner, "checkpoint stored")
            learner.tell(CheckpointSaved(learner_step, step, blob.manifest, held))

        _Attempts(
            learner,
            lambda: self._world.store.put(key, blob.parts),
            lambda _, seconds: saved(seconds),
            lambda: learner.tell(CheckpointFailed()),
            lambda: not learner.state.closed,
            CHECKPOINT_TRIES_MAX,
        ).begin()

    def _offer(self, ask: Offer) -> None:
        learner, copy = self._learner, ask.copy
        base, live = learner.copies[copy.fragment]
        blob = self._coded(copy, delta_of(base, live))
        blob = self._world.hardships.forged(learner, blob)
        key = delta_key(
            self._world.run,
            learner.case.id,
            learner.state.incarnation,
            copy.fragment,
            copy.learner_step,
            blob.manifest,
        )

        def stored(seconds: float) -> None:
            self._world.point(learner, "delta stored")
            learner.tell(OfferStored(ask.round, copy, blob.manifest, seconds))

        _Attempts(
            learner,
            lambda: self._world.store.put(key, blob.parts),
            lambda _, seconds: stored(seconds),
            lambda: learner.tell(OfferFailed(ask.round, copy)),
            lambda: copy in learner.state.making,
        ).begin()

    def _coded(self, copy: Copy, delta: Arrays) -> Encoded:
        learner, codecs = self._learner, self._world.case.opening.run.codecs
        if not codecs.feeds_back:
            delta = self._world.hardships.spoilt(learner, delta)
            return encode_tensors(delta, codecs.delta, squares=True)
        held = of(learner.state, copy.residuals)
        if held:
            self._world.hit("a delta holds residuals")
        whole = dict(with_residuals(delta, learner.kept.of(held), codecs.delta))
        blob, residual = encode_keeping(self._world.hardships.spoilt(learner, whole), codecs.delta)
        learner.kept.put(copy.fragment, copy.learner_step, residual)
        learner.kept.keep(in_use(learner.state))
        return blob

    def _fetch(self, ask: Fetch) -> None:
        learner = self._learner
        key = global_key(self._world.run, ask.fragment, ask.version, ask.manifest)

        def fetched(arrays: Arrays, seconds: float) -> None:
            learner.fetched[ask.fragment] = ask.version, arrays
            learner.tell(Fetched(ask.fragment, ask.version, seconds))
            self._world.point(learner, "fetched")

        _Attempts(
            learner,
            lambda: self._world.store.tensors(key, ask.manifest),
            fetched,
            lambda: learner.tell(FetchFailed(ask.fragment, ask.version)),
            lambda: learner.state.fragments[ask.fragment].newest == ask.version,
        ).begin()


class _Attempts:
    """One job, tried until it is done, given up, or wanted no more."""

    def __init__(
        self,
        learner: LearnerProcess,
        do: Callable[[], Arrays] | Callable[[], None],
        done: Callable[[Arrays, float], None],
        failed: Callable[[], None],
        is_wanted: Callable[[], bool],
        tries_max: int = 1_000_000,
    ) -> None:
        self._learner, self._do = learner, do
        self._done, self._failed, self._is_wanted = done, failed, is_wanted
        self._tries_max = tries_max
        self._tries = 0
        self._began = learner.heap.now
        self._pause_seconds: float = RETRY_SECONDS_MIN

    def begin(self) -> None:
        """One try: the transfer takes its time, then the store is asked."""
        self._tries += 1
        learner = self._learner
        seconds = learner.case.transfer_seconds * (0.8 + 0.4 * learner.world.random.random())
        learner.work(seconds * learner.world.store.slowness, self._call)

    def _call(self) -> None:
        if not self._is_wanted():
            self._give_up()
            return
        self._learner.ask_store("transfer", self._do, self._answered)

    def _answered(self, result: Arrays | Failure | None) -> None:
        if isinstance(result, Failure):
            if isinstance(result, Corrupt) and self._tries >= CORRUPT_READS_MAX:
                raise result
            if self._tries >= self._tries_max:
                self._give_up()
                return
            self._learner.world.hit("a learner's transfer is tried again")
            self._learner.later(self._pause_seconds, self.begin)
            self._pause_seconds = min(2 * self._pause_seconds, RETRY_SECONDS_MAX)
            return
        self._done(result or {}, self._learner.heap.now - self._began)
        self._learner.look()

    def _give_up(self) -> None:
        self._failed()
        self._learner.look()
