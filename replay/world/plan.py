"""Which hardships a seed draws: a few kinds out of all, as in a swarm, and when each strikes.

Each hardship has a draw of its own, so that leaving some out changes none of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from replay.world.case import Case


@dataclass(frozen=True, slots=True)
class Hardship:
    """One fault: its kind, when it strikes, how long it lasts, and a draw of its own."""

    kind: str
    number: int
    at_seconds: float
    seconds: float
    draw: int

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return f"{self.kind}.{self.number}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of hardship: how many there may be in one world, and how long one lasts.

    `of_mergers`: it strikes only where there are any, and is drawn apart from all others.
    """

    says: str
    most: int
    seconds_min: float
    seconds_max: float
    of_mergers: bool = False


KINDS: dict[str, Kind] = {
    "kill-learner": Kind("a learner is killed at a point between two of its acts", 8, 1.0, 15.0),
    "kill-syncer": Kind("a syncer is killed at a point between two of its acts", 8, 0.5, 10.0),
    "kill-merger": Kind("a merger is killed at a point between two of its acts", 8, 1.0, 10.0,
                        True),
    "kill-all": Kind("every process is killed at once, as by a power cut", 1, 1.0, 5.0),
    "pause-learner": Kind("a learner is stopped, and goes on later", 4, 1.0, 25.0),
    "pause-syncer": Kind("a syncer is stopped, and goes on later", 3, 1.0, 15.0),
    "old-syncer": Kind("the leader is stopped until another has taken over", 2, 6.0, 20.0),
    "pause-merger": Kind("a merger is stopped between two of its acts, and goes on later", 6, 2.0,
                         15.0, True),
    "slow-learner": Kind("a learner's own work takes several times as long", 3, 5.0, 40.0),
    "slow-syncer": Kind("a syncer's own work takes several times as long", 2, 5.0, 20.0),
    "slow-merger": Kind("a merger's own work takes several times as long", 2, 5.0, 20.0, True),
    "cut-one-way": Kind("one direction of one machine's link to one service is cut", 5, 1.0, 15.0),
    "cut-off": Kind("a machine is cut off from both services", 4, 1.0, 20.0),
    "swizzle": Kind("some machines are cut off one by one, and come back in another order", 1, 8.0,
                    25.0),
    "nats-down": Kind("the NATS server is down, and comes back with all it held", 2, 1.0, 12.0),
    "append-unknown": Kind("appends lose their request or answer, or come late", 2, 5.0, 40.0),
    "say-unknown": Kind("words lose their request or answer, or come late", 2, 5.0, 40.0),
    "call-unknown": Kind("calls lose their request or answer, or come late", 2, 5.0, 40.0, True),
    "double-letters": Kind("letters come twice, some of them much later", 2, 5.0, 40.0),
    "late-messages": Kind("messages are held up, so that others overtake them", 2, 5.0, 30.0),
    "store-errors": Kind("the store answers with errors", 2, 2.0, 20.0),
    "store-down": Kind("the store does not answer", 2, 1.0, 12.0),
    "store-slow": Kind("transfers take several times as long", 2, 3.0, 25.0),
    "store-unknown": Kind("puts lose their request or answer, or come late", 2, 5.0, 30.0),
    "store-corrupt": Kind("deltas are stored with a bit that is wrong", 2, 3.0, 30.0),
    "store-missing": Kind("deltas are gone after they were stored", 2, 3.0, 30.0),
    "torn-file": Kind("a recorder's file is torn within a record, and taken up again", 1, 1.0, 1.0),
    "clock-jump": Kind("a machine's time of day jumps", 3, 5.0, 60.0),
    "poison-delta": Kind("a learner offers deltas that are not sound", 4, 3.0, 40.0),
    "broken-model": Kind("a number in a learner's model is none any more", 3, 1.0, 1.0),
    "malformed": Kind("inboxes get what is no word, or may not be said", 4, 1.0, 1.0),
    "lying-words": Kind("a stranger with good credentials says what cannot be", 3, 1.0, 1.0),
    "churn": Kind("learners leave in good order and come back", 4, 3.0, 20.0),
    "doubled-learner": Kind("a second process speaks with a learner's id", 2, 1.0, 1.0),
    "site-loss": Kind("half of the learners are gone at once", 1, 5.0, 30.0),
}  # fmt: skip


def draw_plan(case: Case, wanted: Callable[[Hardship], bool]) -> tuple[Hardship, ...]:
    """The hardships of a case, in the order in which they strike."""
    swarm, apart = Random(f"swarm {case.seed}"), Random(f"swarm of mergers {case.seed}")
    share = swarm.choice((0.0, 0.1, 0.25, 0.25, 0.5, 0.8)) if case.seed else 0.0
    plan = []
    for name in sorted(KINDS):
        kind = KINDS[name]
        drawn = apart if kind.of_mergers else swarm
        if (kind.of_mergers and not case.mergers) or drawn.random() >= share:
            continue
        for number in range(drawn.randint(1, kind.most)):
            own = Random(f"{name} {number} {case.seed}")
            seconds = min(own.uniform(kind.seconds_min, kind.seconds_max), 0.4 * case.hard_seconds)
            plan.append(
                Hardship(
                    kind=name,
                    number=number,
                    at_seconds=own.uniform(3.0, case.hard_seconds - seconds - 1.0),
                    seconds=seconds,
                    draw=own.getrandbits(48),
                )
            )
    kept = [hardship for hardship in plan if wanted(hardship)]
    return tuple(sorted(kept, key=lambda one: (one.at_seconds, one.name)))
