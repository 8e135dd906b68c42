"""A run gone wild: the production machines of syncer and learners, and all that can go wrong.

No clock, tensor or thread: a seeded draw picks what happens next. Lives fall behind the tape,
die, come back and speak twice; uploads fail; the syncer is replaced in the middle of a merge.
`settle` then stops all hardship and lets everybody do what is owed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from random import Random

from decodiloco.learner import machine, outbox, owed, telling
from decodiloco.learner import state as learner_asks
from decodiloco.learner.happenings import (
    Adopted,
    CheckpointFailed,
    CheckpointSaved,
    CheckpointTaken,
    Copied,
    FetchBegun,
    Fetched,
    FetchFailed,
    LeaveWanted,
    Loaded,
    OfferBegun,
    OfferFailed,
    OfferStored,
    Spoken,
    Stepped,
)
from decodiloco.learner.state import Leaving
from decodiloco.opening import Opening
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    FragmentMerged,
    LearnerLeft,
    Word,
    learner_of,
)
from streams.parts import Moments
from tests.builders import digest, manifest
from tests.desk import delta_manifest
from tests.wild_syncer import WildSyncer

Unit = tuple[str, int, int]  # learner, life, step of that life


@dataclass(frozen=True)
class Content:
    """What a stored delta really holds: the steps in it, and the version that it started from."""

    base_version: int
    units: tuple[Unit, ...]
    tokens: int


@dataclass
class Life:
    """One process of a learner: its machine, what it has under way, and what its tensors hold."""

    name: str
    number: int
    region: str
    state: learner_asks.State
    folded: int = 0
    uploads: list[tuple[learner_asks.Offer, Content]] = field(default_factory=list)
    fetches: list[learner_asks.Fetch] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    held: list[list[tuple[Unit, int]]] = field(default_factory=list)
    based_on: list[int] = field(default_factory=list)
    copies: dict[int, Content] = field(default_factory=dict)
    at_hand: dict[int, learner_asks.Fetch] = field(default_factory=dict)
    writes: list[tuple[int, int, int]] = field(default_factory=list)  # fragment, version, step
    untold_most: int = 0
    tells_join: bool = True

    @property
    def over(self) -> bool:
        """Nothing more is to be expected of it."""
        return bool(self.state.left or self.state.ended_by)

    def tell(self, happening: object) -> None:
        self.state = telling.told(self.state, happening)
        self.untold_most = max(self.untold_most, len(self.state.adoptions))

    def fold(self, tape: list[Envelope], count: int) -> None:
        for envelope in tape[self.folded : self.folded + count]:
            if learner_of(envelope.event) in (None, self.name):
                self.state = machine.fold(self.state, envelope)
                self.untold_most = max(self.untold_most, len(self.state.adoptions))
            self.folded += 1


def clock_of(clocks: Iterable[learner_asks.RunClock]) -> learner_asks.RunClock:
    """The latest of several."""
    return reduce(learner_asks.RunClock.later, clocks)


class WildRun:
    """All of it, from one seed."""

    def __init__(self, opening: Opening, seed: int) -> None:
        self.random = Random(seed)
        self.opening = opening
        self.syncer = WildSyncer(opening, self.random)
        self.breaks_share = self.random.choice((0.0, 0.03, 0.7))  # of steps: a loss of NaN
        self.lives: list[Life] = []
        self.everyone: list[Life] = []  # the dead among them
        self.begun = 0
        self.contents: dict[bytes, Content] = {}
        self.fragments = opening.layout.fragments

    # What may happen, one at a time.

    def happen(self) -> None:
        """One thing, drawn."""
        chance = self.random.random()
        if chance < 0.004:
            self.begin_life(self.random.choice("abcd"))
        elif chance < 0.006 and self.lives:
            self.lives.remove(self.random.choice(self.lives))  # killed: nothing more is heard
        elif chance < 0.007 and self.lives:
            self.random.choice(self.lives).tell(LeaveWanted(Leaving("preempted")))
        elif chance < 0.01:
            self.syncer.take_over()
        elif chance < 0.011:
            self.syncer.make_inbox_anew(self.random.choice(self.opening.run.regions))
        elif chance < 0.3:
            self.syncer.happen()
        elif self.lives:
            self.live(self.random.choice(self.lives))

    def begin_life(self, name: str) -> Life:
        """A process starts, whether or not an older one of this id still runs."""
        self.begun += 1
        number = self.begun
        state = machine.begin(self.opening, name)
        life = Life(name, number, self.random.choice(self.opening.run.regions), state)
        life.fold(self.syncer.tape, len(self.syncer.tape))
        versions = tuple(fragment.newest for fragment in life.state.fragments)
        nonce = digest(f"{name} {number} {self.random.random()}")[:16]
        life.tell(Loaded(versions, nonce, clock_of(each.clock for each in life.state.fragments)))
        life.held = [[] for _ in range(self.fragments)]
        life.based_on = list(versions)
        self.lives.append(life)
        self.everyone.append(life)
        return life

    def live(self, life: Life) -> None:
        """One thing happens to one life."""
        draw = self.random.random()
        if draw < 0.2:
            life.fold(self.syncer.tape, self.random.choice((1, 2, 5, 10**6)))
        elif draw < 0.4:
            self.boundary(life, self.random.random() < self.breaks_share)
            self.beside(life)
        elif draw < 0.5:
            self.beside(life)
        elif draw < 0.8:
            self.finish_one(life, self.random.random() < 0.05)
        else:
            self.speak(life, self.random.random() < 0.1)

    def boundary(self, life: Life, breaks: bool = False) -> None:
        """A step is trained and its boundary is done."""
        if life.over or not life.state.incarnation:
            return
        if life.state.final:
            if life.state.leaving is None:
                closed = life.state.closed
                assert closed is not None and tuple(life.based_on) == closed.versions
                life.tell(LeaveWanted(Leaving("finished", closed.digest)))
            return
        tokens = self.random.randint(0, 3)
        loss = float("nan") if breaks else 2.0
        life.tell(Stepped(tokens, loss, b"", self.random.uniform(0.5, 2.0)))
        unit = (life.name, life.number, life.state.learner_step)
        for held in life.held:
            held.append((unit, tokens))
        first = life.state.round + 1
        ahead = range(first, first + self.random.randint(0, self.fragments))
        for ask in owed.owed_at_boundary(life.state, ahead):
            match ask:
                case learner_asks.CopyFragments():
                    life.copies = {f: self._content(life, f) for f in ask.fragments}
                    life.tell(Copied(ask.fragments))
                case learner_asks.Adopt():
                    self._adopt(life, ask)
                case learner_asks.StoreCheckpoint():
                    life.tell(CheckpointTaken(ask.learner_step))
                    life.checkpoints.append(ask.learner_step)

    def beside(self, life: Life) -> None:
        """What may be done beside training is begun."""
        for ask in owed.owed_beside(life.state):
            if isinstance(ask, learner_asks.Fetch):
                life.tell(FetchBegun(ask.fragment, ask.version))
                life.fetches.append(ask)
            else:
                life.tell(OfferBegun(ask.round, ask.copy))
                life.uploads.append((ask, life.copies[ask.copy.fragment]))

    def finish_one(self, life: Life, fails: bool = False) -> None:
        """One upload, download or checkpoint comes to its end."""
        kinds = [kind for kind in (life.uploads, life.fetches, life.checkpoints) if kind]
        if not kinds:
            return
        kind = self.random.choice(kinds)
        if kind is life.uploads:
            ask, content = life.uploads.pop(self.random.randrange(len(life.uploads)))
            name = f"{life.name} {life.number} f{ask.copy.fragment} {ask.copy.learner_step}"
            blob = delta_manifest(name)
            self.contents[blob.digest] = content
            ended = OfferFailed if fails else OfferStored
            life.tell(ended(ask.round, ask.copy, *(() if fails else (blob, 0.5))))
        elif kind is life.fetches:
            fetch = life.fetches.pop(self.random.randrange(len(life.fetches)))
            if fails or life.state.fragments[fetch.fragment].newest != fetch.version:
                life.tell(FetchFailed(fetch.fragment, fetch.version))
            else:
                life.at_hand[fetch.fragment] = fetch
                life.tell(Fetched(fetch.fragment, fetch.version, 0.25))
        else:
            step = life.checkpoints.pop()
            blob = manifest(f"checkpoint {life.name} {step}")
            life.tell(CheckpointFailed() if fails else CheckpointSaved(step, 0, blob))

    def speak(self, life: Life, doubled: bool = False) -> None:
        """The next word goes into the inbox, or the one in flight once more."""
        word: Word | None = life.state.in_flight
        if not life.state.incarnation and life.tells_join and not life.state.closed:
            moments = Moments(source="zero", age_steps=0)
            word = outbox.join_word(life.state, life.region, "test", moments)
        elif word is None:
            word = outbox.next_word(life.state)
            if word is None:
                return
            life.tell(Spoken(word))
            assert isinstance(word, DeltaOffered | CheckpointStored | LearnerLeft)
        for _ in range(2 if doubled else 1):
            self.syncer.receive(life.region, word) if word is not None else None

    def _adopt(self, life: Life, ask: learner_asks.Adopt) -> None:
        for fragment, version in ask.versions:
            kept: list[tuple[Unit, int]] = []
            if self.opening.run.adoption.carry and not ask.refresh:
                merged = self._merged_units(fragment, version)
                kept = [each for each in life.held[fragment] if each[0] not in merged]
            if version > life.based_on[fragment] or ask.refresh == "heal":
                life.writes.append((fragment, version, life.state.learner_step))
            life.held[fragment], life.based_on[fragment] = kept, version
        clock = clock_of(life.at_hand[fragment].clock for fragment, _ in ask.versions)
        life.tell(Adopted(ask.versions, ask.refresh, clock))

    def _merged_units(self, fragment: int, version: int) -> set[Unit]:
        """All steps that are in a fragment's versions up to this one, by what the deltas held."""
        offers = {e.position: e.event for e in self.syncer.tape}
        found: set[Unit] = set()
        for event in offers.values():
            if isinstance(event, FragmentMerged) and event.fragment == fragment:
                for position in event.contributions if event.version <= version else ():
                    offer = offers[position]
                    assert isinstance(offer, DeltaOffered)
                    found.update(self.contents[offer.manifest.digest].units)
        return found

    def _content(self, life: Life, fragment: int) -> Content:
        held = life.held[fragment]
        return Content(
            life.based_on[fragment],
            tuple(unit for unit, _ in held),
            sum(tokens for _, tokens in held),
        )

    # All hardship over: everybody does what is owed.

    def settle(self, cycles: int) -> None:
        """So many times around, each life trains a step and all words and bytes arrive."""
        for _ in range(cycles):
            for life in self.lives:
                life.fold(self.syncer.tape, len(self.syncer.tape))
                if life.over:
                    continue
                self.boundary(life)
                self.beside(life)
                while life.uploads or life.fetches or life.checkpoints:
                    self.finish_one(life)
                self.speak(life)
            self.syncer.settle({life.name for life in self.lives if not life.over})
