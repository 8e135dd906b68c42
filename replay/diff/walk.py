"""Two tapes read in step: how far both say the same, and the first fact where they part. Pure.

Two tapes of one run begin with the same record and agree as long as their digests do. Tapes of
two runs never have a digest in common: they agree as long as they tell the same facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from decodiloco.opening import Opening
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.state import State
from replay.diff.fields import Changed, changed
from replay.diff.knowledge import Knowledge, knowledge_of
from replay.diff.merges import Merges, Pair, pairs
from streams.envelope import Envelope
from streams.errors import ChainBroken
from streams.events import DeltaOffered, EvaluationReported, FragmentMerged, RunClosed


@dataclass(slots=True)
class Side:
    """One tape while it is read, and what was found on it. `opening`: None if it is not there."""

    records: Iterator[Envelope]
    opening: Opening | None
    run: str
    facts: int = 0
    step: int = 0
    loss: float | None = None
    closed: bool = False
    merges: Merges = field(init=False)

    def __post_init__(self) -> None:
        self.merges = Merges(self.run)

    def next(self) -> Envelope | None:
        """The next record, or None at the end."""
        return next(self.records, None)

    def take(self, envelope: Envelope) -> None:
        """Counts a record in."""
        self.facts = envelope.position
        self.merges.tell(envelope)
        match envelope.event:
            case FragmentMerged(step=step):
                self.step = step
            case EvaluationReported(loss=loss):
                self.loss = loss
            case RunClosed():
                self.closed = True
            case _:
                pass


@dataclass(frozen=True, slots=True)
class Moment:
    """A place on a tape: the position, its time, and the syncer step after it."""

    position: int
    time_seconds: float
    step: int


@dataclass(frozen=True, slots=True)
class Parting:
    """The first position where two tapes say different things, and what each syncer knew before.

    `offers`: what was offered and not merged before it, for each side; `knew` is None where the
    state cannot be told.
    """

    one: Envelope
    other: Envelope
    changed: tuple[Changed, ...]
    knew: tuple[Knowledge | None, Knowledge | None]
    offers: tuple[dict[int, DeltaOffered], dict[int, DeltaOffered]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two tapes have in common and where they part.

    `opening` says how the openings of two runs differ; `agreed` is the last moment that both
    tell alike (for two runs, of what follows the opening). `pairs` are the merges from the
    parting on.
    """

    same_run: bool
    opening: tuple[Changed, ...]
    agreed: Moment
    parting: Parting | None
    sides: tuple[Side, Side]
    pairs: tuple[Pair, ...]

    @property
    def agrees(self) -> bool:
        """Whether both are of one run and neither says what the other contradicts."""
        return self.same_run and self.parting is None

    @property
    def longer(self) -> int:
        """How many facts more the first has than the second; negative when it has fewer."""
        return self.sides[0].facts - self.sides[1].facts


def compare(one: Side, other: Side) -> Comparison:
    """Reads both tapes to their ends and says how far they agree."""
    first, theirs = one.next(), other.next()
    assert first is not None and theirs is not None, "a tape holds at least its opening"
    same_run = first.digest == theirs.digest
    opening = () if same_run else _openings(one, first, other, theirs)
    states = [_begun(one, first), _begun(other, theirs)]
    one.take(first)
    other.take(theirs)
    agreed = Moment(1, first.time_seconds, 0)
    parting = None
    while True:
        mine, theirs = one.next(), other.next()
        if mine is None or theirs is None:
            break
        if not _same(mine, theirs, same_run):
            parting = _parting(one, mine, other, theirs, states, same_run)
            break
        one.take(mine)
        other.take(theirs)
        states = _folded(states, (mine, theirs), same_run)
        agreed = Moment(mine.position, mine.time_seconds, one.step)
    for side, record in ((one, mine), (other, theirs)):
        if parting is not None:
            side.merges.keep_from_here()
        if record is not None:
            side.take(record)
        for record in side.records:
            side.take(record)
    made = pairs(one.merges, other.merges)
    return Comparison(same_run, opening, agreed, parting, (one, other), made)


def _same(one: Envelope, other: Envelope, same_run: bool) -> bool:
    if same_run:
        return one.digest == other.digest
    return (one.event, one.fence) == (other.event, other.fence)


def _begun(side: Side, first: Envelope) -> State | None:
    return None if side.opening is None else _after(begin(side.opening), first)


def _folded(
    states: list[State | None], records: tuple[Envelope, Envelope], same_run: bool
) -> list[State | None]:
    """Both states one fact later. Of one run there is only one state, folded once."""
    one = _after(states[0], records[0])
    return [one, one] if same_run else [one, _after(states[1], records[1])]


def _after(state: State | None, envelope: Envelope) -> State | None:
    """The state one fact later; None if it does not follow, which `replay verify` explains."""
    if state is None:
        return None
    try:
        return fold(state, envelope)
    except (ChainBroken, AssertionError, LookupError, ValueError):
        return None


def _parting(
    one: Side,
    mine: Envelope,
    other: Side,
    theirs: Envelope,
    states: list[State | None],
    same_run: bool,
) -> Parting:
    knew = [None if state is None else knowledge_of(state) for state in states]
    found = [
        *changed(mine.event.kind, theirs.event.kind, "kind"),
        *changed(mine.fence, theirs.fence, "fence"),
    ]
    if mine.event.kind == theirs.event.kind:
        found += changed(mine.event, theirs.event)
    if same_run:
        for name in ("writer", "time_seconds", "source"):
            found += changed(getattr(mine, name), getattr(theirs, name), name)
    offers = (dict(one.merges.offers), dict(other.merges.offers))
    return Parting(mine, theirs, tuple(found), (knew[0], knew[1]), offers)


def _openings(one: Side, first: Envelope, other: Side, theirs: Envelope) -> tuple[Changed, ...]:
    """How two runs begin differently: settings, tensors and first fragments, where known."""
    found: list[Changed] = []
    if one.opening is not None and other.opening is not None:
        mine, yours = one.opening, other.opening
        found += changed(mine.run, yours.run, "run")
        found += changed(_tensors(mine), _tensors(yours), "tensors")
        found += changed(mine.fragments, yours.fragments, "first fragments")
    found += changed(first.event, theirs.event, "run_opened")
    if not found:
        for name in ("fence", "writer", "time_seconds"):
            found += changed(getattr(first, name), getattr(theirs, name), name)
    return tuple(found)


def _tensors(opening: Opening) -> dict[str, object]:
    return {tensor.name: tensor for tensor in opening.layout.tensors}
