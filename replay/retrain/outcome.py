"""What a rerun found, as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from replay.reach import EVERYTHING, Reach
from replay.retrain.compare import Difference, Distance


@dataclass(slots=True)
class Tally:
    """What was compared, and how it came out.

    `unread` are those that differ and whose own bytes could not be read in the tape's store.
    """

    compared: int = 0
    identical: int = 0
    unread: int = 0

    @property
    def differing(self) -> int:
        """Those that are not identical."""
        return self.compared - self.identical


@dataclass(slots=True)
class Row:
    """One life trained again.

    `differs` says in which fields this machine is not the recorded one. `random_only` counts
    checkpoints whose moments are identical, and whose random states are not; `untold` those that
    differ, and before which an adoption may have been made that no word told.
    """

    learner: str
    incarnation: int
    differs: tuple[str, ...] = ()
    steps: int = 0
    adoptions: int = 0
    deltas: Tally = field(default_factory=Tally)
    checkpoints: Tally = field(default_factory=Tally)
    random_only: int = 0
    untold: int = 0
    distances: list[Distance] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loss:
    """The held-out loss (nats per token) of the merged model after so many merges."""

    step: int
    tokens: int
    loss: float


@dataclass(slots=True)
class Rerun:
    """What a rerun found.

    `facts` is how long the tape is, `events` how much of it was taken, `only` whose lives were
    trained again if not all. `text_told`: the run was evaluated, so that another text would have
    been refused. `made` counts the merges, `stored_taken` how often the rerun went on
    with the tape's bytes in place of its own, `others` the deltas of learners that were not
    trained again. `reach` is how far back the tape's bytes are kept. `first_difference` is the
    first thing on the tape that came out otherwise, `first_broken` the first of those that had to
    come out the same.
    """

    run: str
    synthetic: bool = False
    facts: int = 0
    events: int = 0
    only: tuple[str, ...] = ()
    text_told: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    made: int = 0
    merges: Tally = field(default_factory=Tally)
    models: Tally = field(default_factory=Tally)
    others: int = 0
    stored_taken: int = 0
    losses: list[Loss] = field(default_factory=list)
    reach: Reach = EVERYTHING
    first_difference: Difference | None = None
    first_broken: Difference | None = None

    def note(self, difference: Difference, is_broken: bool) -> None:
        """Takes in a difference; the first is the one that stands first on the tape."""
        if _is_before(difference, self.first_difference):
            self.first_difference = difference
        if is_broken and _is_before(difference, self.first_broken):
            self.first_broken = difference

    @property
    def deltas(self) -> Tally:
        """All lives' deltas together."""
        return _sum(row.deltas for row in self.rows.values())

    @property
    def checkpoints(self) -> Tally:
        """All lives' checkpoints together."""
        return _sum(row.checkpoints for row in self.rows.values())

    @property
    def differs(self) -> tuple[str, ...]:
        """The fields in which this machine is not one that the tape was recorded on."""
        return tuple(sorted({field for row in self.rows.values() for field in row.differs}))

    @property
    def unread(self) -> int:
        """How many things differ whose own bytes are gone from the tape's store."""
        return self.deltas.unread + self.checkpoints.unread + self.merges.unread

    @property
    def ok(self) -> bool:
        """Whether all that had to be the same is, and no bytes were missed."""
        return self.first_broken is None and not self.unread


def _is_before(one: Difference, other: Difference | None) -> bool:
    return other is None or one.position < other.position


def _sum(tallies: Iterable[Tally]) -> Tally:
    every = list(tallies)
    return Tally(
        sum(one.compared for one in every),
        sum(one.identical for one in every),
        sum(one.unread for one in every),
    )
