"""Laws of letting go, whatever facts came before: nothing goes that anything still names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decodiloco.store.keys import named_by
from decodiloco.store.retention import Named, Needs, going, kept_below
from tests.builders import RUN, checkpointed, merged, offered, snapshot_stored

FRAGMENTS = 2
LEARNERS = st.sampled_from("ab")
EVENTS = st.one_of(
    st.builds(
        lambda learner, fragment, step: offered(learner, fragment=fragment, learner_step=step),
        LEARNERS,
        st.integers(0, FRAGMENTS - 1),
        st.integers(1, 4),
    ),
    st.builds(
        lambda fragment, version: merged(fragment=fragment, version=version, round=version),
        st.integers(0, FRAGMENTS - 1),
        st.integers(1, 5),
    ),
    st.builds(
        lambda learner, step: checkpointed(learner, learner_step=step), LEARNERS, st.integers(1, 4)
    ),
    st.builds(snapshot_stored, st.integers(1, 6)),
)
FACTS = st.lists(EVENTS, max_size=25).map(
    lambda events: [Named(at, event) for at, event in enumerate(events, 2)]
)
POSITIONS = st.integers(0, 30)


@given(FACTS, POSITIONS, st.frozensets(POSITIONS))
def test_what_goes_is_named_only_by_facts_that_are_let_go_of(
    facts: list[Named], horizon: int, kept: frozenset[int]
) -> None:
    gone = dict(going(RUN, facts, horizon, kept))
    for position, event in facts:
        for key, _ in named_by(RUN, event):
            if position > horizon or position in kept:
                assert key not in gone
    names = {key for _, event in facts for key, _ in named_by(RUN, event)}
    assert set(gone) <= names


@given(FACTS, POSITIONS, POSITIONS, st.frozensets(POSITIONS))
def test_two_sweeps_let_go_of_just_what_one_to_the_later_horizon_does(
    facts: list[Named], one: int, other: int, offers: frozenset[int]
) -> None:
    """What the first kept may go at the second: nothing is forgotten, and nothing lost."""
    first, second = sorted((one, other))
    needs = Needs(offers, (1, 2), (3, 4))
    kept_before = kept_below(facts, first, needs)
    left = [each for each in facts if each.position > first or each.position in kept_before]
    kept = kept_below(left, second, needs)
    gone = {*dict(going(RUN, facts, first, kept_before)), *dict(going(RUN, left, second, kept))}
    assert gone == set(dict(going(RUN, facts, second, kept)))


@given(FACTS, POSITIONS, st.frozensets(POSITIONS))
def test_kept_facts_stand_below_the_horizon_in_order_and_each_once(
    facts: list[Named], horizon: int, offers: frozenset[int]
) -> None:
    kept = kept_below(facts, horizon, Needs(offers, (1, 2), (3, 4)))
    assert kept == tuple(sorted(set(kept)))
    assert all(position <= horizon for position in kept)
    assert kept_below(facts, horizon, Needs(offers, (1, 2), (3, 4))) == kept
