"""One synthetic run: the production machines of syncer and learners on one heap of moments.

No tensor moves and nothing goes wrong but what the schedules say: uploads, downloads, merges and
words only take their time. All moments come from schedules and from the streams of draws that are
handed in, so the same cluster and seed give the same tape in any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from decodiloco.opening import Opening
from decodiloco.syncer.machine import begin
from decodiloco.syncer.state import State
from replay.synthetic.cluster import Cluster
from replay.synthetic.naming import Naming
from replay.synthetic.schedule import Schedule
from replay.synthetic.seat import Seat
from replay.synthetic.syncer import Syncer
from replay.world.heap import Heap
from streams.envelope import Envelope
from streams.events import RunOpened, Word


@dataclass(frozen=True, slots=True)
class Place:
    """Where a learner sits: its id, its speed, when its machines are there, its own draws."""

    learner: str
    step_seconds: float
    schedule: Schedule
    draws: Iterator[float]


class World:
    """The heap, the tape, and whoever speaks and hears. `play` goes to the run's end."""

    def __init__(self, opening: Opening, opened: RunOpened, cluster: Cluster, seed: int) -> None:
        self.opening, self.cluster, self.run = opening, cluster, opening.run
        self.heap = Heap()
        self.naming = Naming(opening, seed)
        self.tape: list[Envelope] = []
        self.seats: list[Seat] = []
        self.syncer = Syncer(self, begin(opening), opened)

    def seat(self, place: Place) -> None:
        """Lets a learner take its seat: its lives will begin as its schedule says."""
        region = self.run.regions[len(self.seats) % len(self.run.regions)]
        self.seats.append(Seat(self, place, region))

    def play(self, seconds_max: float) -> bool:
        """Whether the run was closed, and everybody gone, within this time."""
        for seat in self.seats:
            seat.begin()
        return self.heap.run(self._is_over, seconds_max)

    @property
    def state(self) -> State:
        """The syncer's state."""
        return self.syncer.state

    def written(self, envelope: Envelope) -> None:
        """A fact stands on the tape; everybody hears of it a moment later."""
        self.tape.append(envelope)
        self.heap.later(self.cluster.word_seconds, lambda: self._heard(envelope))

    def say(self, word: Word, region: str) -> None:
        """A word is on its way to an inbox; it arrives even when its speaker dies meanwhile."""
        self.heap.later(self.cluster.word_seconds, lambda: self.syncer.receive(word, region))

    def is_alive(self, learner: str, incarnation: int) -> bool:
        """Whether the heart of this very life is heard."""
        return any(seat.learner == learner and seat.lives_as(incarnation) for seat in self.seats)

    def _heard(self, envelope: Envelope) -> None:
        for seat in self.seats:
            seat.hear(envelope)

    def _is_over(self) -> bool:
        state = self.syncer.state
        return state.closed is not None and not state.live
