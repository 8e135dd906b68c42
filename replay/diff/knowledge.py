"""What a syncer knew at a position, as short lines by name, so that two can be compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import Learner, Round, State
from replay.show_words import told_count

DIGITS = 16

Knowledge = Mapping[str, str]


def knowledge_of(state: State) -> Knowledge:
    """The run, its open rounds and its learners, each by its name, and the state's digest."""
    known = {
        "run": (
            f"step {state.step}, {told_count(state.tokens)} tok trained, fence {state.fence}"
            + (f", led by {state.leader}" if state.leader else "")
            + _ending(state)
        ),
        "versions": " ".join(map(str, state.versions)),
        "state digest": state_digest(state).hex()[:DIGITS],
    }
    for number in sorted(state.rounds):
        known[f"r{number}"] = _round(state, state.rounds[number])
    for name in sorted(state.learners):
        known[unlike(name, known)] = _learner(state.learners[name])
    return known


def unlike(learner: str, lines: Knowledge) -> str:
    """The name of a learner's line: its id, unless a line of another kind is called so."""
    return f"learner {learner}" if learner in lines else learner


def _ending(state: State) -> str:
    if state.closed is not None:
        return f", closed: {state.closed.reason}"
    return f", closing: {state.closing}" if state.closing else ""


def _round(state: State, round_: Round) -> str:
    if round_.is_open:
        offers = [(each.position, each.learner) for each in state.waiting(round_.fragment)]
        is_in = f"open since {round_.since}, in: "
    else:
        offers = [
            (position, state.offers[position].learner)
            for position in round_.offers
            if position in state.offers
        ]
        is_in = f"closed at {round_.closed_at} with "
    who = " ".join(f"{learner} @{position}" for position, learner in offers)
    return f"f{round_.fragment} for v{round_.version} {is_in}{who or 'nobody'}"


def _learner(learner: Learner) -> str:
    return (
        f"{learner.status}, life {learner.incarnation}, said {learner.said}, "
        f"step {learner.learner_step}, {told_count(learner.tokens_trained)} tok, "
        f"holds v{' '.join(map(str, learner.adopted))}"
    )
