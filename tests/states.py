"""The states of a run that differ in what may be said and what is owed, as they come about."""

from __future__ import annotations

from collections.abc import Callable

from streams.events import LearnerLost, Word
from tests.builders import closed, closing, horizon_raised, left, snapshot_stored
from tests.desk import Desk

STATES: dict[str, Callable[[Desk], None]] = {}


def a_state(describe: Callable[[Desk], None]) -> Callable[[Desk], None]:
    STATES[describe.__name__.replace("_", " ")] = describe
    return describe


@a_state
def nobody_has_joined(desk: Desk) -> None:
    """Opened, and a syncer leads."""


@a_state
def fewer_than_the_quorum_have_joined(desk: Desk) -> None:
    desk.join("a")


@a_state
def all_have_joined(desk: Desk) -> None:
    desk.join("a"), desk.join("b")


@a_state
def a_round_is_open(desk: Desk) -> None:
    all_have_joined(desk)
    desk.open_round()


@a_state
def one_has_answered(desk: Desk) -> None:
    a_round_is_open(desk)
    desk.answer("b", 1)


@a_state
def a_quorum_has_answered(desk: Desk) -> None:
    one_has_answered(desk)
    desk.join("c")
    desk.answer("c", 1)


@a_state
def all_have_answered(desk: Desk) -> None:
    one_has_answered(desk)
    desk.answer("a", 1)


@a_state
def a_window_is_closed(desk: Desk) -> None:
    all_have_answered(desk)
    desk.close_window(1)


@a_state
def a_round_is_merged(desk: Desk) -> None:
    a_window_is_closed(desk)
    desk.merge(1)


@a_state
def the_end_is_reached(desk: Desk) -> None:
    all_have_joined(desk)
    for number in (1, 2):
        a_round(desk, number)


@a_state
def a_snapshot_has_enough_merges_behind_it(desk: Desk) -> None:
    all_have_joined(desk)
    a_round(desk, 1)
    desk.write(snapshot_stored(desk.state.position))
    a_round(desk, 2)


@a_state
def a_horizon_is_raised(desk: Desk) -> None:
    a_snapshot_has_enough_merges_behind_it(desk)
    following = desk.state.retention.next
    assert following is not None
    desk.write(horizon_raised(following.position))


@a_state
def a_learner_is_lost(desk: Desk) -> None:
    a_round_is_open(desk)
    life = desk.state.learners["a"].incarnation
    desk.write(LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=10.0))


@a_state
def a_learner_has_left(desk: Desk) -> None:
    a_round_is_open(desk)
    desk.say(farewell(desk))


@a_state
def the_run_is_closing(desk: Desk) -> None:
    all_have_joined(desk)
    desk.say(closing())


@a_state
def it_closes_below_its_quorum(desk: Desk) -> None:
    the_run_is_closing(desk)
    desk.open_round()
    desk.say(farewell(desk))


@a_state
def it_closes_below_its_quorum_while_it_merges(desk: Desk) -> None:
    the_run_is_closing(desk)
    desk.open_round()
    desk.answer("a", 1), desk.answer("b", 1)
    desk.close_window(1)
    desk.say(farewell(desk))


@a_state
def the_last_pass_is_merged(desk: Desk) -> None:
    the_run_is_closing(desk)
    for number in (1, 2):
        a_round(desk, number)


@a_state
def the_run_is_closed(desk: Desk) -> None:
    the_last_pass_is_merged(desk)
    desk.write(closed(step=2, tokens=desk.state.tokens, versions=(1, 1)))


@a_state
def the_run_is_over(desk: Desk) -> None:
    the_run_is_closed(desk)
    for name in ("a", "b"):
        desk.say(farewell(desk, name))


def a_round(desk: Desk, number: int) -> None:
    desk.open_round()
    desk.answer("a", number), desk.answer("b", number)
    desk.close_window(number), desk.merge(number)


def farewell(desk: Desk, name: str = "a") -> Word:
    learner = desk.state.learners[name]
    return left(
        name,
        incarnation=learner.incarnation,
        said=learner.said + 1,
        reason="asked",
        learner_step=learner.learner_step,
        tokens_trained=learner.tokens_trained,
    )


def desk_at(name: str) -> Desk:
    keep = {"keep_merges": 1}
    desk = Desk(fragments=2, quorum=2, snapshot_merges=1, end={"steps": 2}, retention=keep)
    STATES[name](desk)
    return desk
