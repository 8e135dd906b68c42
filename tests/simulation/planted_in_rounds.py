"""Faults in rounds, windows and the end of a run. See `planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decodiloco.merge.order import StoredMerge
from decodiloco.syncer import (
    drafting,
    offers,
    owed,
    quorum,
    rounds,
)
from decodiloco.syncer.in_flight import Offers
from decodiloco.syncer.quorum import Verdict
from decodiloco.syncer.state import State
from tests.simulation.planting import Bug, Change

_right_lost = owed.DeclareLost


def _under_quorum() -> list[Change]:
    def verdict(state: State, round_: Any) -> Verdict:
        found = quorum.verdict(state, round_)
        answers = rounds.answers(state, round_)
        if found.action == "wait" and answers:
            return Verdict("close", "all answered", answers[0].position, ())
        return found

    return [(owed, "verdict", verdict)]


def _no_grace() -> list[Change]:
    def verdict(state: State, round_: Any) -> Verdict:
        found = quorum.verdict(state, round_)
        return replace(found, action="close") if found.action == "later" else found

    return [(owed, "verdict", verdict)]


def _late_offers_count() -> list[Change]:
    return [(quorum, "answers", lambda state, round_: state.waiting(round_.fragment))]


def _refused_counts() -> list[Change]:
    right, refused = offers.refused, set()

    def remembered(state: State, event: Any) -> State:
        refused.add((event.round, event.learner))
        return right(state, event)

    def verdict(state: State, round_: Any) -> Verdict:
        found = quorum.verdict(state, round_)
        answers = rounds.answers(state, round_)
        others = {name for number, name in refused if number == round_.number}
        others -= {offer.learner for offer in answers}
        if found.action == "wait" and len(answers) + len(others) >= state.config.quorum:
            return Verdict("later", "grace ended", 0, found.missed)
        return found

    return [(offers, "refused", remembered), (owed, "verdict", verdict)]


def _merged_twice() -> list[Change]:
    right = offers.settled

    def wrong(state: State, ends: Any) -> State:
        ends = list(ends)
        stay = {place: state.offers[place] for place, fate in ends if fate == "merged"}
        made = right(state, ends)
        return replace(made, offers=Offers({**made.offers, **stay}))

    return [(offers, "settled", wrong)]


def _window_by_arrival() -> list[Change]:
    right = drafting._window

    def wrong(state: State, ask: Any, waited: Any) -> Any:
        made = right(state, ask, waited)
        return made.model_copy(update={"offers": tuple(sorted(made.offers))})

    return [(drafting, "_window", wrong)]


def _late_offer_lost() -> list[Change]:
    right = drafting._window

    def wrong(state: State, ask: Any, waited: Any) -> Any:
        made = right(state, ask, waited)
        kept = tuple(each for each in made.offers if state.offers[each].round == ask.round)
        return made.model_copy(update={"offers": kept})

    return [(drafting, "_window", wrong)]


def _grace_never_ends() -> list[Change]:
    def verdict(state: State, round_: Any) -> Verdict:
        found = quorum.verdict(state, round_)
        return replace(found, action="wait") if found.action == "later" else found

    return [(owed, "verdict", verdict), (owed, "DeclareLost", _never_lost)]


def _never_lost(name: str, incarnation: int, since: int, seconds: float) -> Any:
    return _right_lost(name, incarnation, since, 1e9)


def _abandoned_forgets() -> list[Change]:
    right = rounds.abandoned

    def wrong(state: State, event: Any) -> State:
        fragment = state.rounds[event.round].fragment
        state = right(state, event)
        waiting = state.waiting(fragment)
        return offers.settled(state, [(offer.position, "left_out") for offer in waiting])

    return [(rounds, "abandoned", wrong)]


def _superseded_stays() -> list[Change]:
    return [(offers, "superseded", lambda state, fragment, positions: state)]


def _closed_otherwise() -> list[Change]:
    from decodiloco.syncer.compose import Draft

    right = drafting.from_close

    def wrong(versions: Any, digest: bytes) -> Any:
        draft = right(versions, digest)

        def decide(state: State) -> Any:
            made = draft.decide(state)
            return made and made.model_copy(update={"tokens": made.tokens + 1})

        return Draft(decide)

    return [(drafting, "from_close", wrong)]


def _two_rounds_of_a_fragment() -> list[Change]:
    return [(State, "round_of", lambda self, fragment: None)]


def _left_out_untold() -> list[Change]:
    right = drafting.from_merge

    def wrong(ask: Any, result: Any, merge_seconds: float) -> Any:
        if isinstance(result, StoredMerge):
            result = replace(result, left_out=())
        return right(ask, result, merge_seconds)

    return [(drafting, "from_merge", wrong)]


BUGS: dict[str, Bug] = {
    "merge under quorum": Bug(
        "A window closes as soon as anybody has answered.", "at least K", _under_quorum
    ),
    "no grace": Bug("A window closes at its quorum, without grace.", "at least K", _no_grace),
    "late offers count": Bug(
        "An offer made for an earlier round counts for the quorum.", "at least K",
        _late_offers_count, 6,
    ),
    "refused counts": Bug(
        "A refused offer counts as an answer.", "at least K", _refused_counts, 30
    ),
    "contribution merged twice": Bug(
        "A merged offer stays, and is in the next window of its fragment, too.", "state as told",
        _merged_twice,
    ),
    "window by arrival": Bug(
        "A window's offers stand in the order of their arrival.", "window by position",
        _window_by_arrival,
    ),
    "late offer lost": Bug(
        "An offer that came too late for its round joins no later one.", "window by position",
        _late_offer_lost, 12,
    ),
    "grace never ends": Bug(
        "A window waits for everybody, and nobody is declared lost.", "goes on",
        _grace_never_ends, 30,
    ),
    "left out untold": Bug(
        "A merge does not tell which offers it left out.", "judged once", _left_out_untold, 30
    ),
    "abandoned forgets": Bug(
        "Offers that passed an abandoned merge are left out of the next.", "state as told",
        _abandoned_forgets, 30,
    ),
    "superseded stays": Bug(
        "An older offer of the same learner keeps waiting.", "state as told", _superseded_stays, 12
    ),
    "closed otherwise": Bug(
        "RunClosed tells other tokens than were trained.", "closed as it stood", _closed_otherwise
    ),
    "two rounds of a fragment": Bug(
        "A fragment's next round opens before the last one is merged.", "rounds in order",
        _two_rounds_of_a_fragment, 12,
    ),
}  # fmt: skip
