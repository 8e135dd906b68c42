"""One life of a learner in a synthetic run: the production machine, stepping as a schedule says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from decodiloco.fragments.schedule import pace_steps, rounds_ahead
from decodiloco.learner import machine
from decodiloco.learner.happenings import (
    Adopted,
    CheckpointSaved,
    CheckpointTaken,
    Copied,
    FetchBegun,
    Fetched,
    Happening,
    LeaveWanted,
    Loaded,
    OfferBegun,
    OfferStored,
    Restored,
    Spoken,
    Stepped,
)
from decodiloco.learner.outbox import join_word, next_word
from decodiloco.learner.owed import owed_at_boundary, owed_beside
from decodiloco.learner.residuals import to_store
from decodiloco.learner.state import (
    Adopt,
    CopyFragments,
    Fetch,
    Leave,
    Leaving,
    Offer,
    State,
    StoreCheckpoint,
)
from decodiloco.learner.telling import told
from replay.synthetic.mark import NAME
from streams.envelope import Envelope
from streams.events import RoundOpened
from streams.parts import Moments

if TYPE_CHECKING:
    from replay.synthetic.seat import Seat


class LifeOnTape:
    """Loads, joins, trains, copies, uploads, fetches, adopts, speaks, leaves; or is killed."""

    def __init__(self, seat: Seat, state: State, number: int) -> None:
        self.state = state
        self._seat, self._world, self._number = seat, seat.world, number
        self._schedule = seat.place.schedule
        self._heap = seat.world.heap
        self._is_over = False
        self._round_heard_at = self._stepped_at = self._heap.now
        self._waking_at = -math.inf

    def begin(self) -> None:
        """Fetches the newest version of every fragment, all at once, then joins."""
        versions = tuple(fragment.newest for fragment in self.state.fragments)
        self._later(self._drawn(self._world.cluster.fetch_seconds), lambda: self._join(versions))

    def hear(self, envelope: Envelope) -> None:
        """A fact has arrived."""
        joined = self.state.incarnation
        if isinstance(envelope.event, RoundOpened):
            self._round_heard_at = self._heap.now
        self.state = machine.fold(self.state, envelope)
        if self.state.incarnation and not joined:
            self._stepped_at = self._heap.now
            first = next(self._seat.place.draws) if self._number == 1 else 1.0
            self._step(first * self._seat.place.step_seconds)
        if self.state.left or (self.state.closed is not None and not self.state.incarnation):
            self.kill()
            self._seat.left(self)
            return
        self._beside()

    def leave(self) -> None:
        """Told that its machines are taken away: it says what it has to say, and goes."""
        if not self.state.incarnation:
            self.kill()
            self._seat.left(self)
        elif self.state.alive and not self.state.closed:
            self._tell(LeaveWanted(Leaving("preempted")))
            self._beside()

    def kill(self) -> None:
        """Nothing of it happens any more; words on their way arrive."""
        self._is_over = True

    # Coming into the run.

    def _join(self, versions: tuple[int, ...]) -> None:
        if self.state.closed is not None:
            self.kill()
            self._seat.left(self)
            return
        nonce = self._world.naming.digest(f"{self.state.learner} life {self._number}")[:16]
        self._tell(Loaded(versions, nonce))
        moments = moments_of(self.state)
        if moments.source == "own":
            self._tell(Restored(self.state.checkpoints[self.state.learner].residuals))
        word = join_word(self.state, self._seat.region, NAME, moments)
        self._world.say(word, self._seat.region)

    # Training.

    def _step(self, seconds: float) -> None:
        """Begins a step that takes so many seconds of stepping; pauses come on top."""
        begun = self._heap.now
        end = self._schedule.step_end(begun, seconds)
        if end < math.inf:
            self._later(end - begun, lambda: self._boundary(begun))

    def _boundary(self, begun: float) -> None:
        """A step is done: what is owed between two steps is done, and the next one begins."""
        if not self.state.alive:
            return
        now, run = self._heap.now, self._world.run
        share = self._schedule.share_between(begun, now)
        tokens = sequences_of(run.training.batch_sequences, share) * run.model.context
        self._tell(Stepped(tokens, 0.0, b"", now - self._stepped_at))
        self._stepped_at = now
        for ask in owed_at_boundary(self.state, self._ahead()):
            match ask:
                case CopyFragments():
                    self._tell(Copied(ask.fragments))
                case Adopt():
                    self._tell(Adopted(ask.versions, ask.refresh))
                case StoreCheckpoint():
                    self._checkpoint(ask)
                case Leave():
                    raise AssertionError("a final model is not stepped")
        if self.state.final:
            digest = self._world.naming.digest("model")
            self._tell(LeaveWanted(Leaving("finished", digest)))
        self._beside()
        self._step(self._drawn(self._seat.place.step_seconds))

    def _ahead(self) -> range:
        state, run = self.state, self._world.run
        mean_seconds, pace_seconds = state.step_seconds or 0.0, state.pace_seconds
        if not state.round:
            pace_seconds = mean_seconds * pace_steps(run.inner_steps, run.fragments)
        since_seconds = self._heap.now - self._round_heard_at
        return rounds_ahead(state.round, pace_seconds, since_seconds, mean_seconds, run.fragments)

    def _checkpoint(self, ask: StoreCheckpoint) -> None:
        state = self.state
        manifest = self._world.naming.checkpoint(state.learner, state.incarnation, ask.learner_step)
        self._tell(CheckpointTaken(ask.learner_step))
        held = tuple(one.position for one in to_store(state))
        saved = CheckpointSaved(ask.learner_step, state.step, manifest, held)
        self._then(self._drawn(self._world.cluster.upload_seconds), saved)

    # Beside training.

    def _beside(self) -> None:
        """Begins what may be done beside training, and says what is to be said; not in a pause."""
        if self._is_over or not self.state.incarnation or self._is_held():
            return
        for ask in owed_beside(self.state):
            if isinstance(ask, Offer):
                self._offer(ask)
            else:
                self._fetch(ask)
        word = next_word(self.state)
        if word is not None:
            self._tell(Spoken(word))
            self._world.say(word, self._seat.region)

    def _is_held(self) -> bool:
        """Whether it reconfigures, and does nothing else; then it looks again afterwards."""
        if self._world.cluster.answers_while_paused or self.state.leaving is not None:
            return False
        resumes = self._schedule.resumes_at(self._heap.now)
        if resumes <= self._heap.now:
            return False
        if self._waking_at < resumes < math.inf:
            self._waking_at = resumes
            self._later(resumes - self._heap.now, self._beside)
        return True

    def _offer(self, ask: Offer) -> None:
        self._tell(OfferBegun(ask.round, ask.copy))
        manifest = self._world.naming.delta(
            self.state.learner, self.state.incarnation, ask.copy.fragment, ask.copy.learner_step
        )
        seconds = self._drawn(self._world.cluster.upload_seconds)
        self._then(seconds, OfferStored(ask.round, ask.copy, manifest, seconds))

    def _fetch(self, ask: Fetch) -> None:
        self._tell(FetchBegun(ask.fragment, ask.version))
        seconds = self._drawn(self._world.cluster.fetch_seconds)
        self._then(seconds, Fetched(ask.fragment, ask.version, seconds))

    def _then(self, seconds: float, happening: Happening) -> None:
        def happen() -> None:
            self._tell(happening)
            self._beside()

        self._later(seconds, happen)

    def _tell(self, happening: Happening) -> None:
        self.state = told(self.state, happening)

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        self._heap.later(seconds, lambda: None if self._is_over else happen())

    def _drawn(self, seconds: float) -> float:
        """What a step or a transfer that takes so long takes this time."""
        jitter = self._world.cluster.jitter
        return seconds * (1.0 + jitter * (2.0 * next(self._seat.place.draws) - 1.0))


def sequences_of(batch_sequences: int, share: float) -> int:
    """What a learner trains in a step with this share of its slices: rounded, at least one."""
    return max(1, round(batch_sequences * share))


def moments_of(state: State) -> Moments:
    """Where a newcomer's optimizer moments come from: as a live one would choose."""
    from decodiloco.learner.joining import candidates  # loads torch, which only newcomers need

    found = candidates(state)
    return found[0][1] if found else Moments(source="zero", age_steps=0)
