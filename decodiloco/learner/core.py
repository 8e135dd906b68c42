"""A learner without threads, clocks or sockets: its state, its tensors, and its jobs.

The session drives it with a training thread and a network thread; a test drives it by hand:

    core = LearnerCore(opening, "a", parameters, optimizer)
    for envelope in tape: core.fold(envelope)
    core.load(store, nonce)                     # newest fragments into the model
    say(core.join_word("home", "", ZERO))       # until LearnerJoined is folded
    while True:
        ...one optimizer step...
        core.step(tokens, loss)                 # count, copy, adopt
        core.work(store)                        # deltas into the store, merged versions out of it
        while (word := core.say()): ...         # one at a time, each folded before the next
        core.adopt()                            # for a world without latency: adopt at once

`step`, `adopt`, `checkpoint` and `digest` belong to the thread that trains; everything else may be
called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock

import torch

from decodiloco.fragments.schedule import pace_steps, rounds_ahead
from decodiloco.learner import machine, residuals
from decodiloco.learner.adopt import zero_moments
from decodiloco.learner.anchors import Anchors
from decodiloco.learner.checkpoint import Raw, capture
from decodiloco.learner.copies import Arrays, HostBuffers, HostCopy, copied
from decodiloco.learner.feedback import Coded, Kept, from_arrays, to_arrays
from decodiloco.learner.happenings import (
    Adopted,
    CheckpointFailed,
    CheckpointSaved,
    CheckpointTaken,
    Copied,
    FetchBegun,
    Fetched,
    FetchFailed,
    Happening,
    LeaveWanted,
    LetGo,
    Loaded,
    OfferBegun,
    OfferFailed,
    OfferStored,
    Restored,
    Spoken,
    Stepped,
)
from decodiloco.learner.jobs import CheckpointJob, FetchJob, Job, OfferJob, Result, Stored
from decodiloco.learner.outbox import join_word, next_word
from decodiloco.learner.owed import copies_in_use, owed_at_boundary, owed_beside
from decodiloco.learner.state import (
    Adopt,
    Checkpoint,
    Copy,
    CopyFragments,
    Fetch,
    Leave,
    LeaveReason,
    Leaving,
    Offer,
    RunClock,
    State,
    StoreCheckpoint,
)
from decodiloco.learner.telling import told
from decodiloco.merge.model_digest import model_digest
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from streams.envelope import Envelope
from streams.events import LearnerJoined, Word
from streams.manifest import Manifest
from streams.parts import Moments


class LearnerCore:
    """One life of a learner: what it knows, and the tensors that it trains.

    `parameters` are the live tensors by their names in the layout.
    """

    def __init__(
        self,
        opening: Opening,
        learner: str,
        parameters: Mapping[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.state: State = machine.begin(opening, learner)
        self.run = opening.run
        self.layout = opening.layout
        self._parameters = parameters
        self.optimizer = optimizer
        self._lock = Lock()
        self._names = [
            tuple(tensor.name for tensor in opening.layout.of(fragment))
            for fragment in range(opening.layout.fragments)
        ]
        self._buffers = HostBuffers()
        self._anchors = Anchors(opening.run.adoption, self._buffers)
        self._copies: dict[int, HostCopy] = {}
        self._fetched: dict[int, tuple[Fetch, Arrays]] = {}
        self._captured: list[CheckpointJob] = []
        self._kept = Kept()

    # What the tape says, and what is said to the inbox.

    def fold(self, envelope: Envelope) -> None:
        """Takes in one record of the tape; one that was folded already changes nothing."""
        with self._lock:
            self.state = machine.fold(self.state, envelope)

    def join_word(self, region: str, fingerprint: str, moments: Moments) -> LearnerJoined:
        """The word that begins this life, as of now."""
        return join_word(self.state, region, fingerprint, moments)

    def say(self) -> Word | None:
        """The next word, which is in flight from now on until its fact or refusal is folded."""
        with self._lock:
            word = next_word(self.state)
            if word is not None:
                self.state = told(self.state, Spoken(word))
            return word

    def let_go(self) -> None:
        """The inbox has the word in flight; who leaves does not wait until the tape has it."""
        self._tell(LetGo())

    def has_word(self) -> bool:
        """Whether `say` would give one."""
        return next_word(self.state) is not None

    def leave(self, reason: LeaveReason, digest: bytes = b"") -> None:
        """This life ends: its last word will be said once those before it are.

        And once the checkpoint that is being stored is said, too, or given up.
        """
        self._tell(LeaveWanted(Leaving(reason, digest)))

    def give_up_checkpoint(self) -> None:
        """Nobody waits any longer for the checkpoint that is being stored."""
        self._tell(CheckpointFailed())

    # Before joining.

    def newest(self) -> list[FetchJob]:
        """One job a fragment that fetches its newest version."""
        return [
            FetchJob(
                self.run.name,
                Fetch(index, fragment.newest, fragment.manifest, fragment.clock),
            )
            for index, fragment in enumerate(self.state.fragments)
        ]

    def load(self, store: BlobStore, nonce: bytes) -> None:
        """Fetches the newest version of every fragment and writes it into the model."""
        jobs = self.newest()
        self.loaded(jobs, [job.run_on(store) for job in jobs], nonce)

    def loaded(self, jobs: list[FetchJob], results: list[Arrays], nonce: bytes) -> None:
        """Writes fetched fragments, one each, into the model: the first anchors of this life."""
        for job, arrays in zip(jobs, results, strict=True):
            self._anchors.load(self._parameters, job.ask.fragment, arrays)
        versions = tuple(job.ask.version for job in jobs)
        self._tell(Loaded(versions, nonce, _newest(job.ask for job in jobs)))

    def residuals_in(self, stored: Checkpoint, arrays: Raw) -> dict[int, Coded]:
        """The residuals that a checkpoint of ours holds and no merge has made good, by position.

        Raises BlobCorrupt where it does not hold what its fact says.
        """
        wanted = [one for one in self.state.residuals if one.position in stored.residuals]
        return from_arrays(arrays, wanted, self.layout, self.run.codecs.delta)

    def restore(self, found: Mapping[int, Coded]) -> None:
        """This life goes on with these residuals, of those that `residuals_in` gave."""
        for one in self.state.residuals:
            if one.position in found:
                self._kept.put(one.fragment, one.learner_step, found[one.position])
        self._tell(Restored(tuple(found)))

    # On the thread that trains, between two steps.

    def step(
        self,
        tokens: int,
        loss: float,
        cursor: bytes = b"",
        step_seconds: float = 0.0,
        since_seconds: float = 0.0,
    ) -> None:
        """One inner step was trained: counts it, copies what is due, adopts what is at hand.

        `step_seconds` is what the step took, `since_seconds` what has passed since the newest
        `RoundOpened` was folded. When the run is closed and its last versions stand in the model
        afterwards, `state.final` is true and no further step may be trained.
        """
        assert not self.state.final, "the model stands at the run's last versions"
        state = self._tell(Stepped(tokens, loss, cursor, step_seconds))
        mean_seconds = state.step_seconds or 0.0
        pace_seconds = state.pace_seconds
        if not state.round:  # no round was opened yet: the pace is as configured
            pace_seconds = mean_seconds * pace_steps(self.run.inner_steps, self.run.fragments)
        ahead = rounds_ahead(
            state.round, pace_seconds, since_seconds, mean_seconds, self.run.fragments
        )
        for ask in owed_at_boundary(state, ahead):
            match ask:
                case CopyFragments():
                    self._copy(ask.fragments)
                case Adopt():
                    self._adopt(ask)
                case StoreCheckpoint():
                    self._checkpoint(ask)
                case Leave():
                    raise AssertionError("a final model is not stepped")

    def adopt(self) -> None:
        """Adopts what has come to hand since, at the same boundary."""
        for ask in owed_at_boundary(self.state):
            if isinstance(ask, Adopt):
                self._adopt(ask)

    def checkpoint(self) -> None:
        """The inner state as it stands becomes a job, unless that of this very step is one."""
        state = self.state
        if state.learner_step > state.checkpointed_step and not (state.closed or state.refresh):
            self._checkpoint(StoreCheckpoint(state.learner_step))

    def digest(self) -> bytes:
        """The digest of the live tensors, as `RunClosed` carries it."""
        return model_digest(
            self.layout,
            (
                (name, array)
                for names in self._names
                for name, array in copied(self._parameters, names).items()
            ),
        )

    # Beside the thread that trains.

    def jobs(self) -> list[Job]:
        """What can be done now; each job is handed out once and must be told `done` or `failed`."""
        with self._lock:
            jobs: list[Job] = [] if self.state.ended_by else [*self._captured]
            self._captured.clear()
            for ask in owed_beside(self.state):
                if isinstance(ask, Fetch):
                    begun: Happening = FetchBegun(ask.fragment, ask.version)
                    jobs.append(FetchJob(self.run.name, ask))
                else:
                    begun = OfferBegun(ask.round, ask.copy)
                    jobs.append(self._offer_job(ask))
                self.state = told(self.state, begun)
            return jobs

    def has_jobs(self) -> bool:
        """Whether `jobs` would hand something out."""
        return bool((self._captured and not self.state.ended_by) or owed_beside(self.state))

    def is_wanted(self, job: Job) -> bool:
        """Whether a job's result is still of use."""
        state = self.state
        if state.ended_by:  # from there on this life writes nothing more
            return False
        if isinstance(job, OfferJob):
            return job.ask.copy in state.making
        if isinstance(job, FetchJob):
            return state.fragments[job.ask.fragment].newest == job.ask.version
        return not state.closed

    def done(self, job: Job, result: Result, seconds: float) -> None:
        """A job was carried out, from start to durable end, in so many seconds."""
        if isinstance(job, FetchJob):
            assert isinstance(result, dict)
            with self._lock:
                self._fetched[job.ask.fragment] = job.ask, result
                self.state = told(self.state, Fetched(job.ask.fragment, job.ask.version, seconds))
            return
        if isinstance(job, OfferJob):
            assert isinstance(result, Stored)
            self._keep(job.ask.copy, result.residual)
            self._tell(OfferStored(job.ask.round, job.ask.copy, result.manifest, seconds))
        else:
            assert isinstance(result, Manifest)
            self._tell(CheckpointSaved(job.learner_step, job.step, result, job.residuals))

    def failed(self, job: Job) -> None:
        """A job was given up."""
        if isinstance(job, FetchJob):
            self._tell(FetchFailed(job.ask.fragment, job.ask.version))
        elif isinstance(job, OfferJob):
            self._tell(OfferFailed(job.ask.round, job.ask.copy))
        else:
            self._tell(CheckpointFailed())

    def work(self, store: BlobStore) -> None:
        """Carries out all jobs there are, here and now, as if they took no time."""
        while jobs := self.jobs():
            for job in jobs:
                self.done(job, job.run_on(store), 0.0)

    def _tell(self, happening: Happening) -> State:
        with self._lock:
            self.state = told(self.state, happening)
            return self.state

    def _copy(self, fragments: tuple[int, ...]) -> None:
        step = self.state.learner_step
        copies = {
            fragment: self._anchors.copy(self._parameters, fragment, self._names[fragment], step)
            for fragment in fragments
        }
        with self._lock:
            self._copies = copies
            self.state = told(self.state, Copied(fragments))
        if self.run.adoption.carry:
            for fragment, steps in enumerate(copies_in_use(self.state)):
                self._anchors.keep(fragment, steps)

    def _adopt(self, ask: Adopt) -> None:
        with self._lock:
            state = self.state
            fetched = [self._fetched[fragment] for fragment, _ in ask.versions]
        for fetch, arrays in fetched:
            index = fetch.fragment
            if ask.refresh:
                self._anchors.load(self._parameters, index, arrays)
            else:
                merged_step = state.fragments[index].merged_since(fetch.version)
                self._anchors.adopt(self._parameters, index, arrays, merged_step)
        if ask.refresh == "heal":
            zero_moments(self.optimizer)
        adopted = [fetch for fetch, _ in fetched]
        versions = tuple((fetch.fragment, fetch.version) for fetch in adopted)
        with self._lock:
            for fetch in adopted:
                if self._fetched[fetch.fragment][0] == fetch:
                    del self._fetched[fetch.fragment]
            self.state = told(self.state, Adopted(versions, ask.refresh, _newest(adopted)))

    def _checkpoint(self, ask: StoreCheckpoint) -> None:
        arrays = capture(self.optimizer, self._parameters, self._buffers)
        with self._lock:
            held = residuals.to_store(self.state)
            at = tuple(one.position for one in held)
            arrays |= to_arrays(dict(zip(at, self._kept.of(held), strict=True)))
            self._captured.append(
                CheckpointJob(
                    self.run.name, self.state.learner, ask.learner_step, self.state.step, arrays, at
                )
            )
            self.state = told(self.state, CheckpointTaken(ask.learner_step))

    def _offer_job(self, ask: Offer) -> OfferJob:
        return OfferJob(
            run=self.run.name,
            learner=self.state.learner,
            incarnation=self.state.incarnation,
            codec=self.run.codecs.delta,
            ask=ask,
            copy=self._copies[ask.copy.fragment],
            residuals=self._held(ask.copy) if self.run.codecs.feeds_back else None,
        )

    def _held(self, copy: Copy) -> tuple[Coded, ...]:
        return self._kept.of(residuals.of(self.state, copy.residuals))

    def _keep(self, copy: Copy, residual: Coded | None) -> None:
        """Keeps what was lost of an offer while it may be merged, and lets go of what cannot."""
        if residual is not None:
            with self._lock:
                self._kept.put(copy.fragment, copy.learner_step, residual)
                self._kept.keep(residuals.in_use(self.state))


def _newest(fetches: Iterable[Fetch]) -> RunClock:
    """The clock of the newest merge among these versions."""
    clock = RunClock()
    for fetch in fetches:
        clock = clock.later(fetch.clock)
    return clock
