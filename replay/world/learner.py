"""A learner's process in the world: one life, from its start to its last word.

What decides is the production machine of `decodiloco.learner`; here is the shell that a live one
has in its session and transport, and a small model that it really trains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from decodiloco.errors import Disagreement, LifeEnded, Orphaned, Quarantined
from decodiloco.fragments.schedule import pace_steps, rounds_ahead
from decodiloco.learner import machine
from decodiloco.learner.feedback import Coded, Kept, from_arrays
from decodiloco.learner.happenings import (
    Adopted,
    CheckpointTaken,
    Copied,
    Happening,
    LeaveWanted,
    Loaded,
    Restored,
    Spoken,
    Stepped,
)
from decodiloco.learner.outbox import join_word, next_word
from decodiloco.learner.owed import copies_in_use, owed_at_boundary
from decodiloco.learner.state import Adopt, CopyFragments, Leave, Leaving, State, StoreCheckpoint
from decodiloco.learner.telling import told
from decodiloco.store.keys import checkpoint_key, global_key
from decodiloco.store.tensors import read_raw
from decodiloco.times import RESEND_SECONDS
from replay.world.case import LearnerCase
from replay.world.jobs import Jobs
from replay.world.model import Arrays, Model
from replay.world.network import Delivery, Service
from replay.world.process import Process
from streams.codec import encode_event
from streams.envelope import Envelope
from streams.errors import Failure
from streams.events import RoundOpened, Word, learner_of, speaker_of
from streams.parts import Moments
from streams.pulse import Beat

if TYPE_CHECKING:
    from replay.world.world import World

T = TypeVar("T")

RETRY_SECONDS = 1.0


class LearnerProcess(Process):
    """One life of one learner."""

    def __init__(self, world: World, case: LearnerCase, number: int) -> None:
        super().__init__(world.heap, case.id, world.process_ended)
        self.world, self.case = world, case
        self.run_config = world.case.opening.run
        self.state: State = machine.begin(world.case.opening, case.id)
        self.model = Model(world.case.opening.layout, (world.case.seed, _ordinal(case.id), number))
        self.kept = Kept()
        self.copies: dict[int, tuple[Arrays, Arrays]] = {}
        self.fetched: dict[int, tuple[int, Arrays]] = {}
        self.is_finished = False
        self._number = number
        self._jobs = Jobs(self)
        self._heard_at = self._round_heard_at = world.heap.now
        self._stepped_at = world.heap.now
        self._catching_up: int | None = None

    def start(self) -> None:
        """Follows the tape to its end as it is now, loads the run, and joins."""
        Delivery(self.world.network, self, self.world.tape.shelf, 0, self._fold, self._is_for_us)
        self.world.pulse.listen(self, self._hear, "syncer")
        self._beat()
        self._ask("read", self._last_for_us, self._catch_up)

    def tell(self, happening: Happening) -> None:
        """Something happened off the tape."""
        self.state = told(self.state, happening)

    def look(self) -> None:
        """Begins what may be done beside training, and says what is to be said."""
        self._jobs.begin()
        self._speak()

    def leave(self) -> None:
        """Asked to stop, as before a machine is taken away."""
        if self.state.alive:
            self.tell(LeaveWanted(Leaving("preempted")))
            self._speak()

    def ask_store(
        self, kind: str, do: Callable[[], T], answered: Callable[[T | Failure], None]
    ) -> None:
        """One call to the store."""
        self.world.network.call(self, "store", kind, do, answered)

    # Coming into the run.

    def _is_for_us(self, envelope: Envelope) -> bool:
        return learner_of(envelope.event) in (None, self.case.id)

    def _last_for_us(self) -> int:
        for envelope in reversed(self.world.tape.records):
            if self._is_for_us(envelope):
                return envelope.position
        return 0

    def _ask(
        self, kind: str, do: Callable[[], T], then: Callable[[T], None], service: Service = "nats"
    ) -> None:
        """Asks until there is an answer."""

        def answered(result: T | Failure) -> None:
            if isinstance(result, Failure):
                self.later(RETRY_SECONDS, lambda: self._ask(kind, do, then, service))
            else:
                then(result)

        self.world.network.call(self, service, kind, do, answered)

    def _catch_up(self, position: int) -> None:
        self._catching_up = position
        self._caught_up()

    def _caught_up(self) -> None:
        if self._catching_up is not None and self.state.position >= self._catching_up:
            self._catching_up = None
            self._load(self._restore)

    def _load(self, then: Callable[[], None]) -> None:
        """Fetches the newest version of each fragment, and writes them into the model."""
        wanted = [(fragment.newest, fragment.manifest) for fragment in self.state.fragments]

        def read() -> list[Arrays]:
            return [
                self.world.store.tensors(
                    global_key(self.world.run, index, version, manifest), manifest
                )
                for index, (version, manifest) in enumerate(wanted)
            ]

        def load(merged: list[Arrays]) -> None:
            for index, arrays in enumerate(merged):
                self.model.load(index, arrays)
            nonce = f"{self.case.id} {self._number} {self.state.position}".encode()
            self.tell(Loaded(tuple(version for version, _ in wanted), nonce.rjust(16)[-16:]))
            then()

        self._ask("get", read, load, "store")

    def _restore(self) -> None:
        """Takes the residuals out of the checkpoint that the last life left, and joins."""
        stored = self.state.checkpoints.get(self.case.id)
        if stored is None or not self.run_config.codecs.feeds_back or self.state.closed is not None:
            self._join()
            return
        key = checkpoint_key(self.world.run, self.case.id, stored.learner_step, stored.manifest)

        def read() -> dict[int, Coded]:
            arrays = read_raw(self.world.store, key, stored.manifest)
            wanted = [one for one in self.state.residuals if one.position in stored.residuals]
            opening = self.world.case.opening
            return from_arrays(arrays, wanted, opening.layout, opening.run.codecs.delta)

        def restore(found: dict[int, Coded]) -> None:
            for one in self.state.residuals:
                if one.position in found:
                    self.world.hit("a life goes on with residuals")
                    self.kept.put(one.fragment, one.learner_step, found[one.position])
            self.tell(Restored(tuple(found)))
            self._join()

        self._ask("get", read, restore, "store")

    def _join(self) -> None:
        """Says that this life begins, until the tape has it, or the run is closed."""
        if self.state.incarnation:
            return
        if self.state.closed is not None:
            self._load(self._end_at_closed_run)
            return
        self.world.point(self, "join composed")
        moments = Moments(source="zero", age_steps=0)
        self._say(join_word(self.state, self.case.region, "world", moments))
        self.later(RESEND_SECONDS, self._join)

    def _end_at_closed_run(self) -> None:
        self._check_digest(self.model.digest())
        self._finish()

    # What the tape says.

    def _fold(self, envelope: Envelope) -> None:
        joined, in_flight = self.state.incarnation, self.state.in_flight
        self._heard_at = self.heap.now
        if isinstance(envelope.event, RoundOpened):
            self._round_heard_at = self.heap.now
        self.state = machine.fold(self.state, envelope)
        if self._catching_up is not None:
            self._caught_up()
        if self.state.incarnation and not joined:
            self._stepped_at = self.heap.now
            self.world.point(self, "joined")
            self.work(self.case.step_seconds * self.world.random.random(), self._boundary)
        if self.state.left:
            self._finish()
            return
        if in_flight is not None and self.state.in_flight is None:
            self.world.point(self, f"{in_flight.kind} folded")
        self.look()

    def _hear(self, beat: Beat) -> None:
        self._heard_at = self.heap.now

    def _beat(self) -> None:
        """A heartbeat once joined; and the watch over the run's own silence."""
        silent_seconds = self.heap.now - self._heard_at
        if silent_seconds > self.run_config.times.orphan_seconds_max:
            self.world.hit("a learner is orphaned")
            raise Orphaned(f"nothing was heard for {silent_seconds:.0f} s")
        state = self.state
        if state.incarnation and not state.left:
            values: dict[str, int | float | str] = {
                "incarnation": state.incarnation,
                "learner_step": state.learner_step,
            }
            self.world.pulse.beat(self, Beat("learner", self.case.id, values))
        self.later(self.run_config.times.heartbeat_seconds, self._beat)

    # Training.

    def _boundary(self) -> None:
        """One inner step was trained: what is owed between two steps is done."""
        if self.state.quarantined_for:
            raise Quarantined(f"learner {self.case.id}: {self.state.quarantined_for}")
        if self.state.ended_by:
            raise LifeEnded(f"a newer life of learner {self.case.id} joined")
        if not self.state.alive:
            return
        now = self.heap.now
        loss = self.model.step()
        cursor = str(self.state.learner_step + 1).encode()
        self.tell(Stepped(self.case.tokens, loss, cursor, now - self._stepped_at))
        self._stepped_at = now
        for ask in owed_at_boundary(self.state, self._ahead(now)):
            match ask:
                case CopyFragments():
                    step = self.state.learner_step
                    self.copies = {
                        index: self.model.copy_to_offer(index, step) for index in ask.fragments
                    }
                    self.tell(Copied(ask.fragments))
                    for index, steps in enumerate(copies_in_use(self.state)):
                        self.model.keep(index, steps)
                    self.world.point(self, "copied")
                case Adopt():
                    self._adopt(ask)
                case StoreCheckpoint():
                    self._jobs.checkpoint(ask.learner_step)
                    self.tell(CheckpointTaken(ask.learner_step))
                case Leave():
                    raise AssertionError("a final model is not stepped")
        if self.state.final:
            digest = self.model.digest()
            self._check_digest(digest)
            self.tell(LeaveWanted(Leaving("finished", digest)))
        self.look()
        jitter = 0.95 + 0.1 * self.world.random.random()
        self.work(self.case.step_seconds * jitter, self._boundary)

    def _ahead(self, now: float) -> range:
        state = self.state
        mean_seconds = state.step_seconds or 0.0
        pace_seconds = state.pace_seconds
        if not state.round:
            config = self.run_config
            pace_seconds = mean_seconds * pace_steps(config.inner_steps, config.fragments)
        since_seconds = max(0.0, now - self._round_heard_at)
        return rounds_ahead(
            state.round, pace_seconds, since_seconds, mean_seconds, self.run_config.fragments
        )

    def _adopt(self, ask: Adopt) -> None:
        settings = self.run_config.adoption
        for index, version in ask.versions:
            held, arrays = self.fetched.pop(index)
            assert held == version
            if settings.carry and not ask.refresh:
                self.world.hit("a learner carries its work over")
                merged_step = self.state.fragments[index].merged_since(version)
                self.model.carry(index, arrays, merged_step)
            else:
                self.model.load(index, arrays, 0.0 if ask.refresh else settings.alpha)
        self.tell(Adopted(ask.versions, ask.refresh))
        if ask.refresh:
            self.world.hit(f"a learner refreshes all to {ask.refresh}")
        self.world.point(self, "adopted")

    # Speaking.

    def _speak(self) -> None:
        word = next_word(self.state)
        if word is not None:
            self.tell(Spoken(word))
            self.world.point(self, f"{word.kind} composed")
            self._say_until_heard(word)

    def _say_until_heard(self, word: Word) -> None:
        if self.state.in_flight != word:
            return
        self._say(word)
        self.later(RESEND_SECONDS, lambda: self._say_until_heard(word))

    def _say(self, word: Word) -> None:
        payload, speaker, kind = encode_event(word), speaker_of(word), word.kind
        inbox = self.world.inboxes[self.case.region]

        def answered(result: int | Failure) -> None:
            self.world.point(self, f"{kind} acknowledged")

        def put() -> int:
            return self.world.hardships.put(inbox, speaker, kind, payload)

        self.world.network.call(self, "nats", "say", put, answered)

    # The end.

    def _check_digest(self, digest: bytes) -> None:
        closed = self.state.closed
        assert closed is not None
        if digest != closed.digest:
            raise Disagreement(f"learner {self.case.id} ends with another model than the run's")

    def _finish(self) -> None:
        self.is_finished = True
        self.kill()
        self.world.learner_finished(self)


def _ordinal(name: str) -> int:
    return int.from_bytes(name.encode(), "big")
