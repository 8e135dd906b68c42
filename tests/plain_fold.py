"""The fold a second time, as plainly as can be: an array element for every single token.

Knows the facts and the layout of the state digest, and nothing of the production machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from blake3 import blake3

from decodiloco.opening import Opening
from streams.codec import pack
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
    SyncerTookOver,
    WindowClosed,
)
from streams.parts import Adoption, LeftOut

FATES = ("merged", "left_out", "refused", "superseded", "dropped", "lost")
THERE, MERGED, OVERWRITTEN, DIED = range(4)  # how a token's work left the live parameters
UNBELIEVED = ("counters", "old incarnation", "adopted")
NOT_THEIR_FAULT = ("missing", "unreachable", "corrupt")


@dataclass
class Tokens:
    """The tokens of one learner for one fragment, in the order in which they were trained.

    `offer`: the offer in flight that covers a token; `fate`: the number of the fate that the last
    ended offer gave it (-1: none did), and `by`: that offer's position.
    """

    gone: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    offer: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    fate: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    by: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    frozen: int = 0  # so many tokens at the front have their last fate, and nothing moves it
    merged_step: int = 0

    def reach(self, count: int) -> None:
        more = max(0, count - len(self.gone))
        self.gone = np.append(self.gone, np.full(more, THERE))
        self.offer = np.append(self.offer, np.zeros(more, np.int64))
        self.fate = np.append(self.fate, np.full(more, -1))
        self.by = np.append(self.by, np.zeros(more, np.int64))

    def part(self, begin: int, end: int) -> np.ndarray:
        """Which tokens between begin and end may still be told something new."""
        self.reach(end)
        inside = np.zeros(len(self.gone), bool)
        inside[max(begin, self.frozen) : end] = True
        return inside & (self.gone != MERGED)

    def freeze(self) -> None:
        settled = (self.gone == MERGED) | ((self.gone != THERE) & (self.offer == 0))
        left = np.flatnonzero(~settled[self.frozen :])
        self.frozen = self.frozen + int(left[0]) if len(left) else len(settled)

    def offered(self, begin: int, end: int, position: int) -> None:
        inside = self.part(begin, end)
        self.offer[inside] = position
        self.freeze()

    def refused(self, begin: int, end: int, position: int) -> None:
        inside = self.part(begin, end)
        self.fate[inside], self.by[inside] = FATES.index("refused"), position
        self.freeze()

    def end(self, position: int, fate: str, step: int) -> None:
        """An offer in flight came to its end."""
        covered = self.offer == position
        self.offer[covered] = 0
        if fate == "merged":
            self.gone[covered] = MERGED
            self.merged_step = max(self.merged_step, step)
        else:
            last = covered & (self.by < position)
            self.fate[last], self.by[last] = FATES.index(fate), position
        self.freeze()

    def leave(self, count: int, how: int) -> None:
        """The work of the first `count` tokens is gone, if it was not before."""
        inside = self.part(0, count)
        self.gone[inside & (self.gone == THERE)] = how
        self.freeze()

    def cut(self, count: int) -> None:
        """What was told of tokens beyond these is forgotten: only a refusal told it."""
        if self.frozen <= count:
            for name in ("gone", "offer", "fate", "by"):
                setattr(self, name, getattr(self, name)[:count])
        self.freeze()

    def totals(self) -> list[int]:
        found = np.where(self.fate >= 0, self.fate, FATES.index("dropped"))
        found[self.gone == DIED] = FATES.index("lost")
        found[self.gone == MERGED] = FATES.index("merged")
        settled = (self.gone == MERGED) | ((self.gone != THERE) & (self.offer == 0))
        return [int(n) for n in np.bincount(found[settled], minlength=len(FATES))]


@dataclass
class Life:
    """A learner: its newest life, and its tokens for each fragment."""

    incarnation: int = 0
    said: int = 0
    trained: int = 0
    is_lost: bool = False
    is_quarantined: bool = False
    marks: int = 0
    tokens: list[Tokens] = field(default_factory=list)


@dataclass
class Round:
    """A round that is not merged. `window`: its offers while it is closed."""

    fragment: int
    version: int
    closed_at: int = 0
    window: list[int] = field(default_factory=list)


class PlainFold:
    """All that the state digest says, from the facts alone."""

    def __init__(self, opening: Opening) -> None:
        self.run = opening.run.name
        self.carries = opening.run.adoption.carry
        count = opening.run.fragments
        self.position = self.fence = self.step = 0
        self.versions = [0] * count
        self.parameters = [manifest.digest for manifest in opening.fragments]
        self.momentum = [b""] * count
        self.rounds: dict[int, Round] = {}
        self.offers: dict[int, DeltaOffered] = {}
        self.lives: dict[str, Life] = {}
        self.inboxes: dict[str, tuple[str, int]] = {}

    def digest(self) -> bytes:
        """State digest v1 of the facts so far."""
        plain = [
            1,
            self.run,
            self.position + 1,
            self.fence,
            self.step,
            self.versions,
            self.parameters,
            self.momentum,
            [self._round(number) for number in sorted(self.rounds)],
            [self._life(name) for name in sorted(self.lives)],
            [[inbox, *self.inboxes[inbox]] for inbox in sorted(self.inboxes)],
        ]
        return blake3(pack(plain)).digest()

    def tell(self, envelope: Envelope) -> None:
        """One fact more."""
        self.position = envelope.position
        if envelope.source is not None:
            inbox, life = envelope.source.inbox, envelope.source.life
            before = self.inboxes.get(inbox, ("", 0))
            read = before[1] if before[0] == life else 0
            self.inboxes[inbox] = life, max(read, envelope.source.sequence)
        match envelope.event:
            case SyncerTookOver(fence=fence):
                self.fence = fence
            case LearnerJoined() as event:
                life = self.lives.setdefault(event.learner, Life())
                self._die(life)
                life.incarnation, life.said, life.is_lost = self.position, 0, False
                life.marks, life.is_quarantined = 0, False
                life.tokens = life.tokens or [Tokens() for _ in self.versions]
                life.trained = event.tokens_trained
            case LearnerLeft() as event:
                life = self.lives[event.learner]
                self._adopt(life, event.adopted, event.reason == "finished")
                life.said, life.trained = event.said, max(life.trained, event.tokens_trained)
                life.is_lost = False
                self._die(life)
            case LearnerLost(learner=name, reason="quarantined"):
                self.lives[name].is_lost, self.lives[name].is_quarantined = False, True
                self._turn_away()
                self._die(self.lives[name])
            case LearnerLost(learner=name):
                self.lives[name].is_lost = True
            case CheckpointStored(learner=name, said=said):
                self.lives[name].said, self.lives[name].is_lost = said, False
            case DeltaOffered() as event:
                self._offered(event)
            case DeltaRefused() as event:
                self._refused(event)
            case RoundOpened(round=number, fragment=fragment, version=version):
                self.rounds[number] = Round(fragment, version)
            case WindowClosed(round=number, offers=offers):
                self.rounds[number].closed_at = self.position
                self.rounds[number].window = list(offers)
            case FragmentMerged() as event:
                self._merged(event)
            case MergeAbandoned(round=number, left_out=left_out):
                for each in left_out:
                    self._strike(each)
                    self._end(each.position, "left_out")
                self.rounds[number].closed_at, self.rounds[number].window = 0, []
                self._keep_newest(self.rounds[number].fragment)
                self._turn_away()
            case RunClosed():
                for position in sorted(self.offers):
                    self._end(position, "left_out")
                self.rounds = {}

    def _offered(self, event: DeltaOffered) -> None:
        life = self.lives[event.learner]
        begin, step = event.tokens_trained - event.tokens, event.learner_step
        self._adopt(life, (each for each in event.adopted if each.learner_step < step))
        tokens = life.tokens[event.fragment]
        if self.carries:  # an offer holds all that its learner has
            tokens.leave(begin, OVERWRITTEN)
        tokens.offered(begin, event.tokens_trained, self.position)
        self._adopt(life, (each for each in event.adopted if each.learner_step >= step))
        life.said, life.is_lost = event.said, False
        life.trained = max(life.trained, event.tokens_trained)
        self.offers[self.position] = event
        self._keep_newest(event.fragment)

    def _refused(self, event: DeltaRefused) -> None:
        life = self.lives.get(event.learner)
        if life is None or life.incarnation != event.incarnation:
            return
        life.said, life.is_lost = max(life.said, event.said), False
        if not event.reason.startswith(UNBELIEVED) and event.fragment < len(self.versions):
            begin, end = event.tokens_trained - event.tokens, event.tokens_trained
            life.tokens[event.fragment].refused(begin, end, self.position)

    def _merged(self, event: FragmentMerged) -> None:
        for position in event.contributions:
            self._mark(position, 1 if position in event.doubted else -1)
            self._end(position, "merged")
        for each in event.left_out:
            self._strike(each)
            self._end(each.position, "left_out")
        self.step = event.step
        self.versions[event.fragment] = event.version
        self.parameters[event.fragment] = event.parameters.digest
        self.momentum[event.fragment] = event.momentum.digest
        del self.rounds[event.round]

    def _adopt(self, life: Life, adoptions: Iterable[Adoption], at_end: bool = False) -> None:
        for each in sorted(adoptions, key=lambda one: (one.learner_step, one.fragment)):
            if at_end or not self.carries:
                life.tokens[each.fragment].leave(each.tokens_trained, OVERWRITTEN)
            life.trained = max(life.trained, each.tokens_trained)

    def _die(self, life: Life) -> None:
        for tokens in life.tokens:
            tokens.leave(life.trained, DIED)
            tokens.cut(life.trained)

    def _strike(self, each: LeftOut) -> None:
        if not each.reason.startswith(NOT_THEIR_FAULT):
            self._mark(each.position, 4)

    def _mark(self, position: int, marks: int) -> None:
        """Marks are of the life that offered, and of no later one."""
        offer = self.offers[position]
        life = self.lives[offer.learner]
        if offer.incarnation == life.incarnation:
            life.marks = min(1000, max(0, life.marks + marks))

    def _turn_away(self) -> None:
        """Nothing of a quarantined life comes into another window."""
        for fragment in range(len(self.versions)):
            for position in self._waiting(fragment):
                if self.lives[self.offers[position].learner].is_quarantined:
                    self._end(position, "left_out")

    def _end(self, position: int, fate: str) -> None:
        offer = self.offers.pop(position)
        tokens = self.lives[offer.learner].tokens[offer.fragment]
        tokens.end(position, fate, offer.learner_step)

    def _waiting(self, fragment: int) -> list[int]:
        """Offers of a fragment in no closed window, by learner id."""
        inside = [position for round_ in self.rounds.values() for position in round_.window]
        found = [
            position
            for position, offer in self.offers.items()
            if offer.fragment == fragment and position not in inside
        ]
        return sorted(found, key=lambda position: (self.offers[position].learner, position))

    def _keep_newest(self, fragment: int) -> None:
        """Of two waiting offers of one learner the older one is superseded."""
        waiting = self._waiting(fragment)
        for older, newer in pairwise(waiting):
            if self.offers[older].learner == self.offers[newer].learner:
                self._end(older, "superseded")

    def _round(self, number: int) -> list[object]:
        one = self.rounds[number]
        positions = one.window or self._waiting(one.fragment)
        return [number, one.fragment, one.version, one.closed_at, positions]

    def _life(self, name: str) -> list[object]:
        life = self.lives[name]
        accounts = []
        for tokens in life.tokens:
            totals = tokens.totals()
            open_tokens = life.trained - sum(totals)
            if life.is_lost:
                totals[FATES.index("lost")] += open_tokens
                open_tokens = 0
            accounts.append([tokens.merged_step, *totals, open_tokens])
        return [name, life.incarnation, life.said, life.marks, accounts]
