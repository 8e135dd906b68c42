"""The public API of a learner: join a run from any training loop.

    with decodiloco.join("run.toml", learner="a", model=model, optimizer=optimizer) as session:
        for batch in batches_from(session.cursor):
            loss = train_one_step(model, optimizer, batch)
            session.step(tokens=batch.numel(), loss=loss, cursor=batches.state())
            if session.finished:
                break

The thread that trains only copies, adopts and reads small state; everything else happens on one
background thread. What goes wrong there is raised by the next `step`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from decodiloco.config import Config
from decodiloco.errors import Disagreement, LifeEnded, Orphaned, Quarantined
from decodiloco.learner.joining import as_config
from decodiloco.learner.leaving import say_farewell
from decodiloco.learner.life import Life
from decodiloco.learner.state import LeaveReason
from decodiloco.places import Places
from decodiloco.times import LEAVE_SECONDS_MAX
from streams.codec import pack, unpack
from streams.errors import AskedWrongly
from streams.parts import CURSOR_BYTES_MAX
from streams.subjects import checked


@dataclass(frozen=True, slots=True)
class Clock:
    """The run's own clock, for schedules: merges, tokens trained by all, and near the end.

    It stands at the newest merge that the learner's model holds: `tokens` are those that the run
    had trained when that merge's round was opened.
    """

    step: int
    tokens: int
    closing: bool


def join(
    config: Path | str | Config,
    learner: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    places: Places | None = None,
) -> Session:
    """Joins a run as `learner`: the model then holds the run's newest parameters.

    The model's own parameters are overwritten: parameters come from the tape only. Moments of
    the optimizer come from this learner's last checkpoint, else from the newest of any learner
    of the last H run steps, else they start at zero. A newer life of the same id ends this one.
    At a run that is closed the model holds its last versions, and `finished` is true at once.

    Raises AskedWrongly when the run is not open, ConfigDiffers or LayoutDiffers when config or
    model are not those of the run, ModelUnfit for a model that cannot be trained here, and
    Orphaned when no syncer admits this learner for `orphan_seconds_max`.

    `places` are used in place of the config's addresses, and left open.
    """
    life = Life(as_config(config), checked(learner, "learner"), places)
    try:
        life.begin(model, optimizer)
        return Session(life)
    except BaseException:
        life.end()
        raise


class Session:
    """A learner's place in a run. A context manager; made by `join`.

    All methods belong to the thread that trains, between two optimizer steps.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._core = life.core
        self._stepped_seconds = time.monotonic()
        self._ended = False
        self._finished = False
        self._has_left = False
        if not life.core.state.incarnation:
            self._check_digest(life.core.digest())
            self._end(finished=True)

    @property
    def finished(self) -> bool:
        """The run is closed, this model holds exactly its last versions, and the tape says so."""
        return self._finished

    @property
    def incarnation(self) -> int:
        """The position of this life's `LearnerJoined`; 0 at a run that was closed before."""
        return self._core.state.incarnation

    @property
    def slot(self) -> int:
        """How many distinct learners joined before this one first did: picks the data shard."""
        joined = self._core.state.joined
        return joined.slot if joined is not None else 0

    @property
    def cursor(self) -> Any:
        """Where to go on in the data: what the last admitted word carried; None at first.

        Lists come back as tuples.
        """
        packed = self._core.state.cursor
        return unpack(packed, CURSOR_BYTES_MAX) if packed else None

    @property
    def clock(self) -> Clock:
        """The run's clock, as this model has it: that of the newest merge that is in it.

        Step and tokens change at the join and at adoptions only, so a schedule that follows them
        can be computed again from the tape; `closing` is heard as it comes.
        """
        state = self._core.state
        return Clock(state.clock.step, state.clock.tokens, state.closing)

    def step(self, tokens: int, loss: float | torch.Tensor, cursor: Any = None) -> None:
        """One optimizer step was made on `tokens` tokens. Returns at once; may adopt in place.

        Call it after `optimizer.step()`, never between forward and backward: merged fragments
        are written into the live parameters here. `loss` is in nats per token; `cursor` is any
        msgpack value up to 1 KiB that says where the data go on. At the end of the run it waits
        until the tape has this learner's last word; `finished` is true then.

        Raises LifeEnded when a newer life of this id has joined, Orphaned when nothing was heard
        of the run for `orphan_seconds_max` (the inner state is stored first, if the store
        answers), Disagreement when the last model is not the run's, StoreDenied or
        PermissionDenied where something is not allowed, and whatever else ended the background.
        The session has ended then.
        """
        if self._ended:
            raise AskedWrongly("this session has ended; stop when `session.finished`, or join anew")
        packed = _packed(cursor)
        if tokens < 0:
            raise AskedWrongly(f"session.step: {tokens} tokens")
        self._check()
        now_seconds = time.monotonic()
        self._core.step(
            tokens=int(tokens),
            loss=float(loss),
            cursor=packed,
            step_seconds=now_seconds - self._stepped_seconds,
            since_seconds=max(0.0, now_seconds - self._life.round_heard_seconds),
        )
        self._stepped_seconds = now_seconds
        self._life.ring()
        if self._core.state.final:
            self._finish()

    def leave(
        self, reason: LeaveReason = "asked", within_seconds: float = LEAVE_SECONDS_MAX
    ) -> bool:
        """Stores a checkpoint, says farewell and ends the session; the run goes on without it.

        Whether its farewell is kept: on the tape, or in the inbox for whoever leads next. Waits at
        most `within_seconds` for store and tape, whatever they do. Not for signal handlers: set a
        flag there, and call this between two steps.
        """
        if not self._ended:
            try:
                if self._core.state.alive:
                    told = say_farewell(self._life, reason, within_seconds)
                    self._has_left = told.is_kept
                    self._life.note("leaves", is_kept=told.is_kept, checkpoint=told.checkpoint)
            finally:
                self._end()
        return self._has_left

    def close(self) -> None:
        """Leaves, if the session has not ended yet."""
        self.leave("asked")

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_failure = kind is not None and issubclass(kind, Exception)
        self.leave("failed" if is_failure else "asked")

    def _check(self) -> None:
        self._check_newest()
        try:
            self._life.check()
        except BaseException:
            self._end()
            raise
        why = self._life.orphaned
        if why:
            try:
                told = say_farewell(self._life, "failed", LEAVE_SECONDS_MAX)
            finally:
                self._end()
            raise Orphaned(f"{why} ({told.checkpoint})")

    def _check_newest(self) -> None:
        state = self._core.state
        if state.quarantined_for:
            self._end()
            raise Quarantined(
                f"run {self._core.run.name}: learner {state.learner} is quarantined since "
                f"position {state.ended_by}, for {state.quarantined_for}; `replay show --learner "
                f"{state.learner}` names each delta that was left out. Mend the machine or its "
                "data, then start it again: a new life begins without marks"
            )
        if state.ended_by:
            self._end()
            raise LifeEnded(
                f"run {self._core.run.name}: a newer life of learner {state.learner} joined at "
                f"position {state.ended_by}; this one has ended"
            )

    def _finish(self) -> None:
        """The run's last versions stand in the model: says so, and waits for the tape."""
        digest = self._core.digest()
        self._core.leave("finished", digest)
        self._life.ring()
        patience_seconds = self._core.run.times.orphan_seconds_max
        try:
            self._life.wait(
                lambda: self._core.state.left or bool(self._core.state.ended_by), patience_seconds
            )
        except BaseException:
            self._end()
            raise
        self._check_newest()
        has_left = self._has_left = self._core.state.left
        self._end(finished=has_left)
        self._check_digest(digest)
        if not has_left:
            raise Orphaned(
                f"run {self._core.run.name}: the model is final, but no syncer admitted the last "
                f"word of learner {self._core.state.learner} for {patience_seconds:.0f} s"
            )

    def _check_digest(self, digest: bytes) -> None:
        closed = self._core.state.closed
        assert closed is not None
        if digest != closed.digest:
            self._finished = False
            raise Disagreement(
                f"run {self._core.run.name}: learner {self._core.state.learner} holds a model of "
                f"digest {digest.hex()[:16]} at the end, the run says {closed.digest.hex()[:16]}; "
                "see `replay verify`"
            )

    def _end(self, finished: bool = False) -> None:
        self._ended = True
        self._finished = finished
        self._life.end()


def _packed(cursor: Any) -> bytes:
    if cursor is None:
        return b""
    try:
        packed = pack(cursor)
    except (TypeError, ValueError, OverflowError) as error:
        raise AskedWrongly(f"session.step: this cursor is no msgpack value: {error}") from None
    if len(packed) > CURSOR_BYTES_MAX:
        raise AskedWrongly(
            f"session.step: a cursor of {len(packed)} bytes; at most {CURSOR_BYTES_MAX} are kept"
        )
    return packed
