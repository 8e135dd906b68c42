"""A run counted again from its tape, as plainly as can be: a record for every single token.

Knows the facts and the words of the design, and nothing of the production machines.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    DeltaRefused,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MergeAbandoned,
    RunClosed,
    WindowClosed,
)
from streams.parts import Adoption

FATES = ("merged", "left_out", "refused", "superseded", "dropped", "lost", "open")


@dataclass
class Token:
    """One token of one fragment: the offers that covered it, and how its work went away."""

    covered: list[int] = field(default_factory=list)  # positions, in order
    gone: str = ""

    def fate(self, ends: dict[int, str]) -> str:
        found = [ends[position] for position in self.covered]
        if "merged" in found:
            return "merged"
        if self.gone == "" or "" in found:
            return "open"
        if self.gone == "died":
            return "lost"
        return found[-1] if found else "dropped"


class PlainRun:
    """All tokens of all learners, and what the tape says of them."""

    def __init__(self, fragments: int, staleness_versions_max: int, carry: bool = False) -> None:
        self.carry = carry
        self.fragments = fragments
        self.staleness_versions_max = staleness_versions_max
        self.tokens: dict[tuple[str, int], list[Token]] = {}
        self.trained: dict[str, int] = {}
        self.lives: dict[str, int] = {}
        self.lost: set[str] = set()
        self.quarantined: set[str] = set()
        self.ends: dict[int, str] = {}  # offer or refusal -> its end, "" while it has none
        self.offers: dict[int, DeltaOffered] = {}
        self.windows: dict[int, tuple[int, ...]] = {}
        self.versions = [0] * fragments
        self.adopted: dict[str, list[int]] = {}
        self.untold: set[int] = set()  # superseded, and no WindowClosed has said so
        self.merged_steps: set[tuple[str, int, int]] = set()
        self.refusals: Counter[str] = Counter()

    def tell(self, envelope: Envelope) -> None:
        """One fact more. Raises AssertionError where it breaks a law of the run."""
        event, position = envelope.event, envelope.position
        match event:
            case LearnerJoined():
                self._joined(event, position)
            case LearnerLeft():
                self._adopt(event.learner, event.adopted, event.reason == "finished")
                self._trained(event.learner, event.tokens_trained)
                self._die(event.learner)
            case LearnerLost(reason="quarantined"):
                self.lost.discard(event.learner)
                self.quarantined.add(event.learner)
                self._die(event.learner)
                self._turn_away()
            case LearnerLost():
                self.lost.add(event.learner)
            case DeltaOffered():
                self._offered(event, position)
            case DeltaRefused():
                self._refused(event, position)
            case WindowClosed():
                self._window(event)
            case FragmentMerged():
                self._merged(event)
            case MergeAbandoned():
                self._abandoned(event)
            case RunClosed():
                assert event.versions == tuple(self.versions)
                self.ends = {p: end or "left_out" for p, end in self.ends.items()}
        if getattr(event, "learner", None) in self.lost and event.kind in (
            "learner_joined", "learner_left", "delta_offered", "checkpoint_stored",
        ):  # fmt: skip
            self.lost.discard(event.learner)

    def fates(self, learner: str, fragment: int) -> dict[str, int]:
        """How many tokens have which fate."""
        tokens = self.tokens[learner, fragment][: self.trained[learner]]
        found = Counter(token.fate(self.ends) for token in tokens)
        if learner in self.lost:
            found["lost"] += found.pop("open", 0)
        return {fate: found[fate] for fate in FATES}

    def waiting(self, learner: str, fragment: int) -> list[int]:
        """Offers of a learner that are in no window and have no end."""
        inside = {position for window in self.windows.values() for position in window}
        return [
            position
            for position, offer in self.offers.items()
            if (offer.learner, offer.fragment) == (learner, fragment)
            and not self.ends[position]
            and position not in inside
        ]

    def _joined(self, event: LearnerJoined, position: int) -> None:
        if event.learner in self.trained:
            assert event.tokens_trained == self.trained[event.learner]
            self._die(event.learner)
        else:
            assert event.slot == len(self.lives)
            self.trained[event.learner] = 0
            for fragment in range(self.fragments):
                self.tokens[event.learner, fragment] = []
        self.lives[event.learner] = position
        self.quarantined.discard(event.learner)
        self.adopted[event.learner] = list(event.versions)

    def _offered(self, event: DeltaOffered, position: int) -> None:
        assert event.incarnation == self.lives[event.learner], "said by an older life"
        self._adopt(
            event.learner, (a for a in event.adopted if a.learner_step < event.learner_step)
        )
        for older in self.waiting(event.learner, event.fragment):
            self.ends[older] = "superseded"
            self.untold.add(older)
        self._trained(event.learner, event.tokens_trained)
        self.offers[position] = event
        if self.carry:  # an offer holds all that is there: what is before it is there no more
            self._overwrite(event.learner, event.fragment, event.tokens_trained - event.tokens)
        self._cover(event.learner, event.fragment, event.tokens_trained, event.tokens, position, "")
        later = (a for a in event.adopted if a.learner_step >= event.learner_step)
        self._adopt(event.learner, later)

    def _refused(self, event: DeltaRefused, position: int) -> None:
        self.refusals[re.split(r"[:;]| \d", event.reason)[0]] += 1
        if event.incarnation == self.lives[event.learner]:
            self.lost.discard(event.learner)
            self._grow(event.learner, event.tokens_trained)
            self._cover(
                event.learner, event.fragment, event.tokens_trained, event.tokens, position,
                "refused",
            )  # fmt: skip

    def _window(self, event: WindowClosed) -> None:
        learners = [self.offers[position].learner for position in event.offers]
        assert learners == sorted(set(learners)), "one offer a learner, in learner-id order"
        for position in event.offers:
            assert self.ends[position] == ""
            assert position in self.waiting(self.offers[position].learner, event.fragment)
        assert self.untold >= set(event.superseded)
        self.untold -= set(event.superseded)
        self.windows[event.round] = event.offers

    def _abandoned(self, event: MergeAbandoned) -> None:
        window = self.windows.pop(event.round)
        for one in event.left_out:
            self.ends[one.position] = "left_out"
        for position in window:
            offer = self.offers[position]
            older = self.waiting(offer.learner, offer.fragment)[:-1]
            self.ends.update(dict.fromkeys(older, "superseded"))
            self.untold.update(older)
        self._turn_away()

    def _turn_away(self) -> None:
        """Nothing of a quarantined life comes into another window."""
        for learner in self.quarantined:
            for fragment in range(self.fragments):
                self.ends.update(dict.fromkeys(self.waiting(learner, fragment), "left_out"))

    def _merged(self, event: FragmentMerged) -> None:
        inside = self.windows.pop(event.round)
        judged = [*event.contributions, *(one.position for one in event.left_out)]
        assert sorted(judged) == sorted(inside)
        assert event.version == self.versions[event.fragment] + 1
        for position in event.contributions:
            offer = self.offers[position]
            stale = self.versions[event.fragment] - offer.base_version
            assert 0 <= stale <= self.staleness_versions_max, f"{stale} versions stale"
            for step in range(offer.learner_step - offer.inner_steps, offer.learner_step):
                unit = (offer.learner, offer.fragment, step)
                assert unit not in self.merged_steps, f"{unit} is merged twice"
                self.merged_steps.add(unit)
            self.ends[position] = "merged"
        for one in event.left_out:
            self.ends[one.position] = "left_out"
        self.versions[event.fragment] = event.version
        assert event.step == sum(self.versions)

    def _adopt(self, learner: str, adoptions: object, is_end: bool = False) -> None:
        for one in sorted(adoptions, key=_step_of):
            assert self.adopted[learner][one.fragment] <= one.version, "an adoption goes back"
            self.adopted[learner][one.fragment] = one.version
            self._trained(learner, one.tokens_trained)
            if is_end or not self.carry:
                self._overwrite(learner, one.fragment, one.tokens_trained)

    def _overwrite(self, learner: str, fragment: int, end: int) -> None:
        for token in self.tokens[learner, fragment][:end]:
            token.gone = token.gone or "overwritten"

    def _die(self, learner: str) -> None:
        for fragment in range(self.fragments):
            tokens = self.tokens[learner, fragment]
            del tokens[self.trained[learner] :]  # told in a refusal only: never counted
            for token in tokens:
                token.gone = token.gone or "died"

    def _trained(self, learner: str, tokens: int) -> None:
        self.trained[learner] = max(self.trained[learner], tokens)
        self._grow(learner, tokens)

    def _grow(self, learner: str, tokens: int) -> None:
        for fragment in range(self.fragments):
            known = self.tokens[learner, fragment]
            known.extend(Token() for _ in range(tokens - len(known)))

    def _cover(
        self, learner: str, fragment: int, end: int, count: int, position: int, fate: str
    ) -> None:
        self.ends[position] = fate
        for token in self.tokens[learner, fragment][end - count : end]:
            token.covered.append(position)


def _step_of(adoption: Adoption) -> int:
    return adoption.learner_step
