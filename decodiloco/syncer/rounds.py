"""Rounds in the syncer's state: opened, closed, merged, abandoned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from decodiloco.syncer import offers, standing
from decodiloco.syncer.fates import Fate
from decodiloco.syncer.grace import average
from decodiloco.syncer.in_flight import Offer
from decodiloco.syncer.state import Merged, Round, State
from streams.events import FragmentMerged, MergeAbandoned, RoundOpened, WindowClosed
from streams.frozen import replace
from streams.parts import LeftOut


def opened(state: State, event: RoundOpened) -> State:
    """A round begins to collect offers."""
    assert event.round == state.next_round, "rounds open in order"
    assert state.round_of(event.fragment) is None, "a fragment has one round at a time"
    assert event.version == state.fragments[event.fragment].version + 1
    round_ = Round(
        number=event.round,
        fragment=event.fragment,
        version=event.version,
        since=state.position,
        grace_seconds_max=event.grace_seconds_max,
    )
    return replace(
        state,
        rounds={**state.rounds, event.round: round_},
        next_round=event.round + 1,
        last_opened=state.position,
    )


def closed(state: State, event: WindowClosed) -> State:
    """The offers of a round are fixed. Which older ones fell away is now told."""
    round_ = state.rounds[event.round]
    assert round_.is_open, "a window closes once"
    held = state.offers.of(round_.fragment)
    assert all(position in held for position in event.offers), "each waits for this fragment"
    distrusted = tuple(
        position for position in event.offers if standing.is_distrusted(state, held[position])
    )
    told = frozenset(event.superseded)
    return replace(
        state,
        rounds={
            **state.rounds,
            event.round: replace(
                round_, offers=event.offers, distrusted=distrusted, closed_at=state.position
            ),
        },
        superseded=tuple(pair for pair in state.superseded if pair[0] not in told),
        timings=replace(
            state.timings,
            quorum_seconds=average(state.timings.quorum_seconds, event.quorum_seconds),
        ),
    )


def merged(state: State, event: FragmentMerged) -> State:
    """A fragment has a new version; the offers in it are settled."""
    round_ = state.rounds[event.round]
    assert not round_.is_open, "only a closed round is merged"
    assert event.version == state.fragments[event.fragment].version + 1
    assert event.step == state.step + 1
    assert frozenset(event.doubted) <= frozenset(event.contributions)
    state = standing.judged(state, event.contributions, event.doubted, event.left_out)
    state = offers.settled(state, _ends(event.contributions, event.left_out))
    fragments = list(state.fragments)
    fragments[event.fragment] = Merged(
        version=event.version,
        parameters=event.parameters,
        momentum=event.momentum,
        report=event.report,
        round=event.round,
    )
    return replace(
        state,
        step=event.step,
        fragments=tuple(fragments),
        rounds=_without(state.rounds, event.round),
        timings=replace(
            state.timings,
            merge_seconds=average(state.timings.merge_seconds, event.merge_seconds),
        ),
    )


def abandoned(state: State, event: MergeAbandoned) -> State:
    """Too few offers passed: the round is open again, those that passed still count.

    Such an offer falls away where its learner has made another one since.
    """
    round_ = state.rounds[event.round]
    assert not round_.is_open, "only a closed round is abandoned"
    state = standing.judged(state, (), (), event.left_out)
    state = offers.settled(state, _ends((), event.left_out))
    again = replace(round_, offers=(), distrusted=(), closed_at=0, since=state.position)
    state = replace(state, rounds={**state.rounds, event.round: again})
    return offers.turned_away(offers.newest_only(state, round_.fragment))


def answers(state: State, round_: Round) -> tuple[Offer, ...]:
    """The waiting offers that were made for this round: these count for its quorum."""
    return tuple(offer for offer in state.waiting(round_.fragment) if offer.round == round_.number)


def _ends(merged: Iterable[int], left_out: Iterable[LeftOut]) -> Iterator[tuple[int, Fate]]:
    """What becomes of the offers of a merge."""
    for position in merged:
        yield position, "merged"
    for one in left_out:
        yield one.position, "left_out"


def _without(open_rounds: Mapping[int, Round], number: int) -> dict[int, Round]:
    return {key: round_ for key, round_ in open_rounds.items() if key != number}
