"""What must hold of rounds and merges, by the facts alone. Pure."""

from __future__ import annotations

from decodiloco.fragments.schedule import fragment_of
from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    FragmentMerged,
    LearnerLeft,
    MergeAbandoned,
    RoundOpened,
    WindowClosed,
)
from streams.parts import LeftOut

CLOCK_SECONDS = 1e-6  # a wait is measured as a difference of two floats


class RoundsInOrder(Invariant):
    """Rounds open in order, one a fragment, once enough learners have joined."""

    name = "rounds in order"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if not isinstance(event, RoundOpened):
            return
        run = ledger.opening.run
        next_round = ledger.rounds_opened + 1
        self.hold(event.round == next_round, f"round {event.round} opens", position)
        fragment = fragment_of(event.round, run.fragments)
        self.hold(event.fragment == fragment, f"fragment {event.fragment}", position)
        self.hold(ledger.round_of(fragment) is None, "a second round of a fragment", position)
        needed = max(run.quorum, run.learners_min)
        enough = len(ledger.lives) >= needed
        self.hold(enough, f"{len(ledger.lives)} learners of {needed} have joined", position)
        self.hold(ledger.closed is None, "a round of a closed run", position)
        if ledger.closing_at:
            last = event.round - run.fragments
            self.hold(last < next_round, f"round {event.round} after the last pass", position)
        self.hold(event.tokens == ledger.tokens, f"{event.tokens} tokens told", position)


class VersionsByOne(Invariant):
    """A merge raises its fragment's version by one and the run's step by one, never back."""

    name = "versions by one"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        match event:
            case RoundOpened() | WindowClosed() | FragmentMerged():
                version = ledger.versions[event.fragment] + 1
                told = f"{event.kind} towards version {event.version}; {version} is next"
                self.hold(event.version == version, told, position)
            case _:
                return
        if isinstance(event, FragmentMerged):
            told = f"step {event.step} after step {ledger.step}"
            self.hold(event.step == ledger.step + 1, told, position)
            self.hold(ledger.closed is None, "a merge of a closed run", position)


class WindowByPosition(Invariant):
    """A window holds exactly the offers that waited at its position, one a learner, by id."""

    name = "window by position"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if not isinstance(event, WindowClosed):
            return
        round_ = ledger.rounds.get(event.round)
        is_open = round_ is not None and round_.window is None
        self.hold(is_open, f"round {event.round} is not open", position)
        waiting = ledger.waiting(event.fragment)
        told = f"the window holds {list(event.offers)}; waiting are {waiting}"
        self.hold(list(event.offers) == waiting, told, position)
        learners = [ledger.offers[each].learner for each in event.offers]
        self.hold(learners == sorted(set(learners)), f"offers of {learners}", position)
        known = all(ledger.untold.get(each) == event.fragment for each in event.superseded)
        self.hold(known, f"superseded {event.superseded}", position)


class Quorum(Invariant):
    """A window closes when K learners have answered its round, and K deltas are merged."""

    name = "at least K"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        quorum = ledger.opening.run.quorum
        match event:
            case WindowClosed():
                answered = sorted(
                    {
                        ledger.offers[each].learner
                        for each in event.offers
                        if each in ledger.offers and ledger.offers[each].round == event.round
                    }
                )
                told = f"{len(answered)} have answered round {event.round}; the quorum is {quorum}"
                self.hold(len(answered) >= quorum, told, position)
                self._reason(ledger, event, answered, position)
            case FragmentMerged():
                merged = {
                    ledger.offers[each].learner
                    for each in event.contributions
                    if each in ledger.offers
                }
                told = f"{len(merged)} learners are merged; the quorum is {quorum}"
                self.hold(len(merged) >= quorum, told, position)
            case MergeAbandoned():
                window = ledger.rounds[event.round].window or ()
                passed = len(window) - len(event.left_out)
                self.hold(passed < quorum, f"abandoned though {passed} passed", position)
            case _:
                pass

    def _reason(
        self, ledger: Ledger, event: WindowClosed, answered: list[str], position: int
    ) -> None:
        """Nobody is waited for in vain, and nobody who still may answer is left behind."""
        missed = [name for name in ledger.live() if name not in answered]
        if event.reason == "all answered":
            self.hold(not missed, f"closed as answered by all; {missed} did not", position)
            return
        wait = ledger.rounds[event.round].grace_seconds - CLOCK_SECONDS
        told = f"closed after {event.waited_seconds:.3f} s of {wait:.3f} s; {missed} were missed"
        self.hold(event.waited_seconds >= wait, told, position)


class JudgedOnce(Invariant):
    """A merge takes or leaves out each offer of its window, once, and says why."""

    name = "judged once"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        left_out: tuple[LeftOut, ...]
        match event:
            case FragmentMerged():
                taken, left_out = event.contributions, event.left_out
            case MergeAbandoned():
                taken, left_out = (), event.left_out
            case _:
                return
        round_ = ledger.rounds.get(event.round)
        window = () if round_ is None else round_.window or ()
        judged = sorted([*taken, *(each.position for each in left_out)])
        told = f"judged {judged} of {sorted(window)}"
        if isinstance(event, FragmentMerged):
            self.hold(judged == sorted(window) and bool(window), told, position)
            learners = [ledger.offers[each].learner for each in taken]
            self.hold(learners == sorted(set(learners)), f"deltas of {learners}", position)
        else:
            inside = set(judged) <= set(window) and len(set(judged)) == len(judged)
            self.hold(inside and bool(window), told, position)


class StepsOnce(Invariant):
    """No inner step of a learner is merged twice into a fragment."""

    name = "steps once"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if not isinstance(event, FragmentMerged):
            return
        for each in event.contributions:
            offer = ledger.offers.get(each)
            self.hold(offer is not None, f"offer {each} is merged, and has ended", position)
            assert offer is not None
            begin = offer.learner_step - offer.inner_steps
            merged = ledger.merged_steps.get((offer.learner, offer.fragment), 0)
            told = f"{offer.learner} from step {begin} on is merged; up to {merged} it was already"
            self.hold(begin >= merged, told, position)


class BaseIsReal(Invariant):
    """An offer starts from a version that its life adopted; merged ones are fresh enough."""

    name = "base is real"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if isinstance(event, DeltaOffered):
            self._offered(ledger, event, position)
        if not isinstance(event, FragmentMerged):
            return
        oldest = ledger.opening.run.merge.staleness_versions_max
        for each in event.contributions:
            stale = event.version - 1 - ledger.offers[each].base_version
            told = f"offer {each} is {stale} versions behind; {oldest} are allowed"
            self.hold(0 <= stale <= oldest, told, position)

    def _offered(self, ledger: Ledger, event: DeltaOffered, position: int) -> None:
        life = ledger.lives[event.learner]
        version, anchor = life.adopted[event.fragment], life.anchors[event.fragment]
        for one in sorted(event.adopted, key=lambda each: each.learner_step):
            if one.fragment == event.fragment and one.learner_step < event.learner_step:
                version, anchor = one.version, one.learner_step
        told = f"{event.learner} offers on version {event.base_version}, and holds {version}"
        self.hold(event.base_version == version, told, position)
        begin = event.learner_step - event.inner_steps
        told = f"{event.learner} offers from step {begin} on, and adopted at {anchor}"
        carries = ledger.opening.run.adoption.carry  # older work then goes on to be offered
        self.hold(begin >= anchor or carries, told, position)


class NoVersionBack(Invariant):
    """Within a life, the versions in the live parameters never go back, and were all made."""

    name = "no version back"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event = envelope.event
        if not isinstance(event, DeltaOffered | LearnerLeft) or not event.adopted:
            return
        held = list(ledger.lives[event.learner].adopted)
        for one in event.adopted:
            made = ledger.versions[one.fragment]
            told = f"version {one.version} of fragment {one.fragment} after {held[one.fragment]}"
            self.hold(held[one.fragment] <= one.version <= made, told, envelope.position)
            held[one.fragment] = one.version
