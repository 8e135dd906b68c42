"""What strikes when: drawn from a seed, and from nothing else.

Time is cut into periods. Each has its own mix of faults that do not touch the same things; one
period in four is quiet. Kinds are drawn like cards: none comes twice before all came once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

MIX_MAX = 3
QUIET_EVERY = 4
ONE_LEARNER = "one learner"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: what it lays hands on, and for how long (seconds, drawn between)."""

    name: str
    touches: tuple[str, ...]
    seconds: tuple[float, float] = (0.0, 0.0)


KINDS = (
    Kind("kill a learner", (ONE_LEARNER,), (0.0, 3.0)),
    Kind("kill the leading syncer", ("syncers",)),
    Kind("kill the standby", ("syncers",)),
    Kind("kill both syncers", ("syncers",), (0.0, 3.0)),
    Kind("kill all learners", ("learners",), (0.0, 3.0)),
    Kind("kill half of the learners", ("learners",), (1.0, 4.0)),
    Kind("kill everything", (ALL,), (0.0, 2.0)),
    Kind("spot notice to a learner", (ONE_LEARNER,), (0.0, 3.0)),
    Kind("stop the leading syncer", ("syncers",), (5.0, 8.0)),
    Kind("stop a learner", (ONE_LEARNER,), (3.0, 10.0)),
    Kind("slow a learner", (ONE_LEARNER,), (8.0, 14.0)),
    Kind("clone a learner", (ONE_LEARNER,), (8.0, 12.0)),
    Kind("a second syncer of one id", ("syncers",), (6.0, 9.0)),
    Kind("restart nats-server", ("nats",)),
    Kind("kill nats-server", ("nats",), (0.0, 3.0)),
    Kind("no nats-server", ("nats",), (60.0, 60.0)),
    Kind("nats-server's disk is full", ("nats",), (3.0, 6.0)),
    Kind("the store's disk is full", ("store",), (3.0, 8.0)),
    Kind("kill the store", ("store",), (0.0, 3.0)),
    Kind("the store answers 500", ("store",), (4.0, 8.0)),
    Kind("the store answers 503", ("store",), (4.0, 8.0)),
    Kind("the store is slow", ("store",), (4.0, 8.0)),
    Kind("answers of the store are cut", ("store",), (4.0, 8.0)),
    Kind("answers to puts are lost", ("store",), (4.0, 8.0)),
    Kind("deltas vanish", ("store",), (6.0, 8.0)),
    Kind("deltas are altered", ("store",), (6.0, 8.0)),
    Kind("words come twice", ("nats",)),
    Kind("old words come late", ("nats",)),
    Kind("a learner's line is slow", (ONE_LEARNER,), (6.0, 12.0)),
    Kind("a learner's line is cut", (ONE_LEARNER,), (4.0, 12.0)),
    Kind("a learner hears nothing", (ONE_LEARNER,), (4.0, 8.0)),
    Kind("the leading syncer's line is cut", ("syncers",), (4.0, 8.0)),
    Kind("poison: not a number", ("rogue",), (10.0, 14.0)),
    Kind("poison: a thousand times the norm", ("rogue",), (10.0, 14.0)),
    Kind("poison: another shape", ("rogue",), (10.0, 14.0)),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: when in its period, on whom, for how long; `seed` for what it draws itself."""

    kind: str
    target: str
    offset_seconds: float
    seconds: float
    seed: int


def draw_plan(
    seed: int,
    periods: int,
    learners: Sequence[str],
    kinds: Sequence[Kind] = KINDS,
    longest_seconds: float = 60.0,
) -> tuple[tuple[Strike, ...], ...]:
    """The mixes of so many periods; an empty one is quiet. `longest_seconds` bounds each fault."""
    chance = Random(seed)
    deck: list[Kind] = []
    plan: list[tuple[Strike, ...]] = []
    quiet = 0
    for number in range(periods):
        if number % QUIET_EVERY == 0:
            quiet = number + chance.randrange(QUIET_EVERY)
        if number == quiet:
            plan.append(())
            continue
        mix = _draw_mix(chance, deck, kinds, chance.randint(1, MIX_MAX))
        plan.append(_strikes(chance, mix, learners, longest_seconds))
    return tuple(plan)


def _draw_mix(chance: Random, deck: list[Kind], kinds: Sequence[Kind], most: int) -> list[Kind]:
    """Takes kinds off the deck whose hands do not meet; the others wait for the next period."""
    mix: list[Kind] = []
    waiting: list[Kind] = []
    while len(mix) < most:
        if not deck:
            if mix:
                break
            deck.extend(kinds)
            chance.shuffle(deck)
        kind = deck.pop()
        if all(_apart(kind, other) for other in mix):
            mix.append(kind)
        else:
            waiting.append(kind)
            if len(waiting) > MIX_MAX:
                break
    deck.extend(reversed(waiting))
    return mix


def _apart(kind: Kind, other: Kind) -> bool:
    mine, theirs = set(kind.touches), set(other.touches)
    if ALL in mine | theirs:
        return False
    if {ONE_LEARNER, "learners"} == (mine | theirs):
        return False
    return mine == theirs == {ONE_LEARNER} or not mine & theirs


def _strikes(
    chance: Random, mix: Sequence[Kind], learners: Sequence[str], longest_seconds: float
) -> tuple[Strike, ...]:
    free = list(learners)
    chance.shuffle(free)
    strikes = []
    for kind in mix:
        least, most = (min(each, longest_seconds) for each in kind.seconds)
        strikes.append(
            Strike(
                kind=kind.name,
                target=free.pop() if ONE_LEARNER in kind.touches else kind.touches[0],
                offset_seconds=round(chance.uniform(0.0, 3.0), 3),
                seconds=round(chance.uniform(least, most), 3),
                seed=chance.randrange(2**32),
            )
        )
    return tuple(strikes)
