"""What must hold between facts, whatever their bytes: quorum, versions, digests, token fates.

These are checks from outside: they count again from the tape what the syncer's machine claims.
Pure: states and events in, Differs out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from decodiloco.syncer.drafting import LEFT_OUT_MAX
from decodiloco.syncer.in_flight import Offer
from decodiloco.syncer.state import State
from replay.decisions_check import check_decision
from replay.errors import Differs
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    EvaluationReported,
    Event,
    FragmentMerged,
    LearnerLeft,
    MergeAbandoned,
    RunClosed,
    SnapshotStored,
    SyncerTookOver,
    WindowClosed,
)

OFFERS_MORE_MAX = 1000
"""How many offers may be kept that came to their end without a fact that names them."""


@dataclass(frozen=True, slots=True)
class FateRow:
    """One learner's tokens for one fragment: trained, and what became of them."""

    learner: str
    fragment: int
    trained: int
    fates: dict[str, int]


@dataclass(slots=True)
class FactsCheck:
    """Told every fact in order; raises Differs at the first that breaks a rule of the run."""

    self_test: bytes
    _offers: dict[int, DeltaOffered | Offer] = field(default_factory=dict)
    _merged_tokens: dict[tuple[str, int], int] = field(default_factory=dict)
    _merge_steps: dict[int, list[int]] = field(default_factory=dict)
    _versions: tuple[int, ...] = ()
    _known_step: int = 0

    @classmethod
    def after(cls, self_test: bytes, state: State) -> FactsCheck:
        """A check that begins after `state`, whose own claims it takes as they are."""
        merged = {
            (name, fragment): state.learners[name].fates(fragment)["merged"]
            for name in sorted(state.learners)
            for fragment in range(len(state.fragments))
        }
        return cls(self_test, dict(state.offers), merged, {}, state.versions, state.step)

    def let_go(self, before: State, steps_max: int) -> None:
        """Bounds what is kept: the unsettled offers, and twice `steps_max` merges.

        `before` is the state after all that was told: what is told next is not in it yet, and would
        be taken for settled. An evaluation of a merge that is older is no longer judged.
        """
        if len(self._offers) > 2 * len(before.offers) + OFFERS_MORE_MAX:
            self._forget(tuple(each for each in self._offers if each not in before.offers))
        if before.step - self._known_step < 2 * steps_max:
            return
        self._known_step = before.step - steps_max
        versions = list(before.versions)
        for fragment, steps in self._merge_steps.items():
            del steps[: bisect_right(steps, self._known_step)]
            versions[fragment] -= len(steps)
        self._versions = tuple(versions)

    def tell(self, before: State, envelope: Envelope) -> None:
        """Checks one fact against the state before it and all that was told."""
        self._tell(before, envelope.event, envelope.position)
        check_decision(before, envelope)

    def _tell(self, before: State, event: Event, position: int) -> None:
        match event:
            case SyncerTookOver():
                if event.self_test != self.self_test:
                    raise Differs(
                        "this syncer's arithmetic gave another known answer than this machine's: "
                        f"{event.self_test.hex()[:16]}, here {self.self_test.hex()[:16]}",
                        position,
                    )
            case DeltaOffered():
                self._offers[position] = event
            case WindowClosed():
                self._check_window(before, event, position)
                self._forget(event.superseded)
            case FragmentMerged():
                self._check_merge(before, event, position)
                self._forget((*event.contributions, *(each.position for each in event.left_out)))
            case MergeAbandoned():
                _check_abandoned(before, event, position)
                self._forget(tuple(each.position for each in event.left_out))
            case SnapshotStored():
                if not 1 <= event.position < position:
                    raise Differs(f"a snapshot of position {event.position}", position)
            case EvaluationReported():
                self._check_evaluation(before, event, position)
            case RunClosed():
                _check_close(before, event, position)
            case LearnerLeft():
                _check_leave(before, event, position)
            case _:
                pass

    def fates(self, state: State) -> tuple[FateRow, ...]:
        """Every learner's account, which must add up to what it trained and fit the merges."""
        rows = []
        for name in sorted(state.learners):
            learner = state.learners[name]
            for fragment in range(len(state.fragments)):
                fates = learner.fates(fragment)
                row = FateRow(name, fragment, learner.tokens_trained, fates)
                told = f"the tokens of learner {name} for fragment {fragment}"
                if sum(fates.values()) != row.trained or min(fates.values()) < 0:
                    raise Differs(
                        f"{told} do not add up: {fates}, trained {row.trained}", state.position
                    )
                counted = self._merged_tokens.get((name, fragment), 0)
                if fates["merged"] != counted:
                    raise Differs(
                        f"{told}: {fates['merged']} are accounted as merged, but the offers in "
                        f"its merges hold {counted}",
                        state.position,
                    )
                rows.append(row)
        return tuple(rows)

    def _forget(self, positions: tuple[int, ...]) -> None:
        """Lets go of offers that came to their end: a long run has millions."""
        for position in positions:
            self._offers.pop(position, None)

    def _check_window(self, before: State, event: WindowClosed, position: int) -> None:
        offers = [self._offers.get(each) for each in event.offers]
        known = [offer for offer in offers if offer is not None]
        if len(known) != len(offers) or any(offer.fragment != event.fragment for offer in known):
            raise Differs(
                f"the window of round {event.round} holds what is no offer for fragment "
                f"{event.fragment}",
                position,
            )
        if len({offer.learner for offer in known}) != len(known):
            raise Differs(f"round {event.round} has two offers of one learner", position)
        answered = sum(offer.round == event.round for offer in known)
        if answered < before.config.quorum:
            raise Differs(
                f"round {event.round} closed with {answered} answers; the quorum is "
                f"{before.config.quorum}",
                position,
            )

    def _check_merge(self, before: State, event: FragmentMerged, position: int) -> None:
        round_ = before.rounds.get(event.round)
        if round_ is None or round_.is_open or round_.fragment != event.fragment:
            raise Differs(f"round {event.round} was not closed for this merge", position)
        judged = (*event.contributions, *(each.position for each in event.left_out))
        if sorted(judged) != sorted(round_.offers):
            raise Differs(
                f"the merge of round {event.round} took and left out {sorted(judged)}, its window "
                f"holds {sorted(round_.offers)}",
                position,
            )
        if len(event.contributions) < before.config.quorum:
            raise Differs(
                f"{len(event.contributions)} contributions; the quorum is {before.config.quorum}",
                position,
            )
        version = before.versions[event.fragment] + 1
        if (event.version, event.step) != (version, before.step + 1):
            raise Differs(
                f"makes version {event.version} at step {event.step}; version {version} at step "
                f"{before.step + 1} is next",
                position,
            )
        self._merge_steps.setdefault(event.fragment, []).append(event.step)
        for each in event.contributions:
            offer = self._offers[each]
            account = (offer.learner, offer.fragment)
            self._merged_tokens[account] = self._merged_tokens.get(account, 0) + offer.tokens

    def _check_evaluation(self, before: State, event: EvaluationReported, position: int) -> None:
        """The versions that were evaluated stood together, right after the step that is named."""
        if event.step > before.step or event.tokens > before.tokens:
            raise Differs(
                f"evaluates step {event.step}, {event.tokens} tokens; the run is at step "
                f"{before.step}, {before.tokens} tokens",
                position,
            )
        if event.step < self._known_step:
            return  # its merges came before this check began, or were let go of
        versions = tuple(
            begun + bisect_right(self._merge_steps.get(fragment, []), event.step)
            for fragment, begun in enumerate(self._versions or (0,) * len(before.fragments))
        )
        if event.versions != versions:
            raise Differs(
                f"evaluates versions {event.versions} at step {event.step}; {versions} stood "
                "there then",
                position,
            )


def _check_abandoned(before: State, event: MergeAbandoned, position: int) -> None:
    round_ = before.rounds.get(event.round)
    left_out = {each.position for each in event.left_out}
    if round_ is None or round_.is_open or not left_out <= set(round_.offers):
        raise Differs(f"round {event.round} had no such window to abandon", position)
    passed = len(round_.offers) - len(left_out)
    is_full = len(left_out) == LEFT_OUT_MAX  # more were unfit than the fact can tell
    if len(left_out) != len(event.left_out) or (passed >= before.config.quorum and not is_full):
        raise Differs(
            f"round {event.round} was abandoned though {passed} offers passed; the quorum is "
            f"{before.config.quorum}",
            position,
        )


def _check_close(before: State, event: RunClosed, position: int) -> None:
    said = (event.step, event.versions, event.tokens)
    found = (before.step, before.versions, before.tokens)
    if said != found:
        raise Differs(f"closed at step, versions, tokens {said}; folded {found}", position)


def _check_leave(before: State, event: LearnerLeft, position: int) -> None:
    if event.reason != "finished":
        return
    if before.closed is None:
        raise Differs(f"learner {event.learner} finished a run that is not closed", position)
    if event.digest != before.closed.digest:
        raise Differs(
            f"learner {event.learner} finished with model {event.digest.hex()[:16]}, the run "
            f"closed with {before.closed.digest.hex()[:16]}",
            position,
        )
