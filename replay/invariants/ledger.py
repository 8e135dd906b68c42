"""The tape read plainly: who lives, which offers wait, which windows are closed. Pure.

An account of its own, in the words of the design and with nothing of the syncer's machine, so
that a fault of that machine does not excuse itself here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from decodiloco.opening import Opening
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MergeAbandoned,
    RoundOpened,
    RunClosed,
    RunClosing,
    SyncerTookOver,
    WindowClosed,
)
from streams.manifest import Manifest
from streams.parts import Adoption, LeftOut

OF_THE_STORE = ("missing", "unreachable", "corrupt")
STRIKE = 4  # marks for a delta that its learner made unfit; a doubted one is worth 1, a sound -1


@dataclass(slots=True)
class Life:
    """The newest life of a learner, and how far the learner came in all of its lives.

    `cursor` is that of the word with the newest step of its own, `cursor_step`.
    """

    incarnation: int
    region: str
    joined_step: int
    joined_tokens: int
    step: int
    tokens: int
    adopted: list[int]
    anchors: list[int]
    cursor: bytes
    cursor_step: int
    said: int = 0
    is_live: bool = True
    has_left: bool = False
    is_quarantined: bool = False
    marks: int = 0

    def adopt(self, adoptions: Iterable[Adoption]) -> None:
        """Merged versions were put into the live parameters."""
        for one in sorted(adoptions, key=lambda each: each.learner_step):
            self.adopted[one.fragment] = one.version
            self.anchors[one.fragment] = one.learner_step
            self.reach(one.learner_step, one.tokens_trained)

    def read(self, cursor: bytes, step: int) -> None:
        """A word tells where the data go on after its step."""
        if step >= self.cursor_step:
            self.cursor, self.cursor_step = cursor, step

    def reach(self, step: int, tokens: int) -> None:
        """The learner came at least so far."""
        self.step, self.tokens = max(self.step, step), max(self.tokens, tokens)


@dataclass(slots=True)
class OpenRound:
    """A round that is not merged: `window` holds its offers while it is closed."""

    fragment: int
    version: int
    opened_at: int
    grace_seconds: float
    window: tuple[int, ...] | None = None


@dataclass(slots=True)
class Ledger:
    """Everything that the invariants look up of the facts so far."""

    opening: Opening
    position: int = 0
    digest: bytes = b""
    fence: int = 0
    writer: str = ""
    step: int = 0
    versions: list[int] = field(default_factory=list)
    parameters: list[Manifest] = field(default_factory=list)
    momentum: list[Manifest | None] = field(default_factory=list)
    rounds: dict[int, OpenRound] = field(default_factory=dict)
    rounds_opened: int = 0
    offers: dict[int, DeltaOffered] = field(default_factory=dict)
    merged_steps: dict[tuple[str, int], int] = field(default_factory=dict)
    merged_tokens: dict[tuple[str, int], int] = field(default_factory=dict)
    untold: dict[int, int] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    closing_at: int = 0
    closed: RunClosed | None = None

    def __post_init__(self) -> None:
        count = self.opening.run.fragments
        self.versions = [0] * count
        self.parameters = list(self.opening.fragments)
        self.momentum = [None] * count

    @property
    def tokens(self) -> int:
        """Trained by all, as far as they have told."""
        return sum(life.tokens for life in self.lives.values())

    def live(self) -> list[str]:
        """Who is there now, by id."""
        return [name for name in sorted(self.lives) if self.lives[name].is_live]

    def round_of(self, fragment: int) -> tuple[int, OpenRound] | None:
        """The fragment's round that is not merged yet."""
        for number, one in self.rounds.items():
            if one.fragment == fragment:
                return number, one
        return None

    def waiting(self, fragment: int) -> list[int]:
        """Offers of a fragment that stand in no closed window, in learner-id order."""
        found = self.round_of(fragment)
        inside = found[1].window or () if found else ()
        positions = [
            position
            for position, offer in self.offers.items()
            if offer.fragment == fragment and position not in inside
        ]
        return sorted(positions, key=lambda position: self.offers[position].learner)

    def tell(self, envelope: Envelope) -> None:
        """Takes one fact in."""
        self.position, self.digest = envelope.position, envelope.digest
        event = envelope.event
        match event:
            case SyncerTookOver():
                self.fence, self.writer = event.fence, envelope.writer
            case LearnerJoined():
                self._joined(event)
            case LearnerLeft():
                life = self.lives[event.learner]
                life.adopt(event.adopted)
                life.reach(event.learner_step, event.tokens_trained)
                life.read(event.cursor, event.learner_step)
                life.said, life.is_live, life.has_left = event.said, False, True
            case LearnerLost():
                self.lives[event.learner].is_live = False
                if event.reason == "quarantined":
                    self._quarantined(event.learner)
            case CheckpointStored():
                life = self.lives[event.learner]
                life.said, life.is_live = event.said, True
            case DeltaOffered():
                self._offered(event)
            case DeltaRefused():
                if event.incarnation == self.lives[event.learner].incarnation:
                    life = self.lives[event.learner]
                    life.said = max(life.said, event.said)
                    life.is_live = not life.has_left
            case RunClosing():
                self.closing_at = self.closing_at or self.position
            case RunClosed():
                self.closed = event
                self.rounds, self.offers = {}, {}
            case RoundOpened() | WindowClosed() | FragmentMerged() | MergeAbandoned():
                self._round(event)
            case _:
                pass

    def _quarantined(self, name: str) -> None:
        """A life is over; what it has offered comes into no further window."""
        life = self.lives[name]
        life.has_left = life.is_quarantined = True
        for fragment in range(len(self.versions)):
            self._turn_away(fragment)

    def _turn_away(self, fragment: int) -> None:
        for position in self.waiting(fragment):
            if self.lives[self.offers[position].learner].is_quarantined:
                del self.offers[position]

    def _mark(self, position: int, marks: int) -> None:
        """For and against the life that offered, as long as it is the newest."""
        offer = self.offers[position]
        life = self.lives[offer.learner]
        if life.incarnation == offer.incarnation:
            life.marks = max(0, life.marks + marks)

    def _strike(self, left_out: Iterable[LeftOut]) -> None:
        for each in left_out:
            if not each.reason.startswith(OF_THE_STORE):
                self._mark(each.position, STRIKE)

    def _joined(self, event: LearnerJoined) -> None:
        self.lives[event.learner] = Life(
            incarnation=self.position,
            region=event.region,
            joined_step=event.learner_step,
            joined_tokens=event.tokens_trained,
            step=event.learner_step,
            tokens=event.tokens_trained,
            adopted=list(event.versions),
            anchors=[event.learner_step] * len(event.versions),
            cursor=event.cursor,
            cursor_step=event.learner_step,
        )

    def _offered(self, event: DeltaOffered) -> None:
        life = self.lives[event.learner]
        life.adopt(event.adopted)
        life.reach(event.learner_step, event.tokens_trained)
        life.read(event.cursor, event.learner_step)
        life.said, life.is_live = event.said, True
        for position in self.waiting(event.fragment):
            if self.offers[position].learner == event.learner:
                self.untold[position] = event.fragment
                del self.offers[position]
        self.offers[self.position] = event

    def _round(self, event: RoundOpened | WindowClosed | FragmentMerged | MergeAbandoned) -> None:
        match event:
            case RoundOpened():
                self.rounds_opened = event.round
                self.rounds[event.round] = OpenRound(
                    event.fragment, event.version, self.position, event.grace_seconds_max
                )
            case WindowClosed():
                self.rounds[event.round].window = event.offers
                for position in event.superseded:
                    self.untold.pop(position, None)
            case MergeAbandoned():
                round_ = self.rounds[event.round]
                round_.window, round_.opened_at = None, self.position
                self._strike(event.left_out)
                for each in event.left_out:
                    del self.offers[each.position]
                self._newest_only(round_.fragment)
                self._turn_away(round_.fragment)
            case FragmentMerged():
                self._merged(event)

    def _newest_only(self, fragment: int) -> None:
        """A round is open again: of two offers of one learner the older one falls away."""
        newest: dict[str, int] = {}
        for position in sorted(self.waiting(fragment)):
            learner = self.offers[position].learner
            if learner in newest:
                self.untold[newest[learner]] = fragment
                del self.offers[newest[learner]]
            newest[learner] = position

    def _merged(self, event: FragmentMerged) -> None:
        self._strike(event.left_out)
        for position in event.contributions:
            self._mark(position, 1 if position in event.doubted else -1)
            offer = self.offers.pop(position)
            account = offer.learner, offer.fragment
            self.merged_steps[account] = offer.learner_step
            self.merged_tokens[account] = self.merged_tokens.get(account, 0) + offer.tokens
        for each in event.left_out:
            del self.offers[each.position]
        self.versions[event.fragment] = event.version
        self.parameters[event.fragment] = event.parameters
        self.momentum[event.fragment] = event.momentum
        self.step = event.step
        del self.rounds[event.round]
