"""A learner's seat in a synthetic run: one id, its lives one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from decodiloco.learner import machine
from decodiloco.learner.state import State
from replay.synthetic.life import LifeOnTape
from streams.envelope import Envelope
from streams.events import learner_of

if TYPE_CHECKING:
    from replay.synthetic.schedule import Life
    from replay.synthetic.world import Place, World

AFTER = 1e-6  # a life ends after what happens at the same moment


class Seat:
    """Begins each life when the schedule says so, and lets it hear what is for this learner."""

    def __init__(self, world: World, place: Place, region: str) -> None:
        self.world, self.place, self.region = world, place, region
        self.learner = place.learner
        self.lives = 0
        self._life: LifeOnTape | None = None
        self._unjoined: State = machine.begin(world.opening, place.learner)

    def begin(self) -> None:
        """Plans all lives of the schedule."""
        for life in self.place.schedule.lives:
            self.world.heap.later(life.begins_seconds, partial(self._start, life))

    def hear(self, envelope: Envelope) -> None:
        """A fact that has arrived here."""
        if self._life is not None and self._is_ours(envelope):
            self._life.hear(envelope)

    def lives_as(self, incarnation: int) -> bool:
        """Whether this very life is there."""
        return self._life is not None and self._life.state.incarnation == incarnation

    def left(self, life: LifeOnTape) -> None:
        """A life has said its last word, and the tape has it."""
        if self._life is life:
            self._life = None

    def _start(self, life: Life) -> None:
        if self._caught_up().closed is not None:
            return
        self.lives += 1
        born = LifeOnTape(self, self._unjoined, self.lives)
        self._life = born
        if life.ends == "killed":
            self._after(life, lambda: self._kill(born))
        elif life.ends == "preempted":
            self._after(life, born.leave)
        born.begin()

    def _after(self, life: Life, happen: Callable[[], None]) -> None:
        self.world.heap.later(life.ends_seconds - self.world.heap.now + AFTER, happen)

    def _kill(self, life: LifeOnTape) -> None:
        """All at once; the syncer finds out when it has heard nothing for long enough."""
        life.kill()
        self.left(life)
        silent_seconds = self.world.run.times.lost_seconds
        self.world.heap.later(silent_seconds, lambda: self.world.syncer.lost(self.learner))

    def _caught_up(self) -> State:
        """What a newcomer of this id knows that has read the tape to its end."""
        for envelope in self.world.tape[self._unjoined.position :]:
            if self._is_ours(envelope):
                self._unjoined = machine.fold(self._unjoined, envelope)
        return self._unjoined

    def _is_ours(self, envelope: Envelope) -> bool:
        return learner_of(envelope.event) in (None, self.learner)
