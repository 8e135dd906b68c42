"""What must hold of the record itself: chain, fences, words, lives. Pure."""

from __future__ import annotations

from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from streams.codec import digest_of, encode_envelope
from streams.envelope import Envelope, genesis
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    HardshipInjected,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MessageRefused,
    RunClosing,
    RunOpened,
    SyncerTookOver,
    speaker_of,
)


class OneChain(Invariant):
    """The tape is one chain of digests from RunOpened on, without a gap, a fork or a change."""

    name = "one chain"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        run = ledger.opening.run.name
        tip = ledger.digest if ledger.position else genesis(run)
        position = envelope.position
        follows = position == ledger.position + 1 and envelope.previous == tip
        self.hold(follows, f"record {position} does not follow {ledger.position}", position)
        own = digest_of(encode_envelope(envelope)) == envelope.digest
        self.hold(own, "a record's digest is not that of its bytes", position)
        is_opening = isinstance(envelope.event, RunOpened)
        self.hold(is_opening == (position == 1), "RunOpened is the first fact alone", position)


class FencesGrow(Invariant):
    """Each takeover raises the fence by one; nothing is written under another, or by another."""

    name = "fences grow"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        position, event = envelope.position, envelope.event
        if isinstance(event, SyncerTookOver):
            grows = event.fence == envelope.fence == ledger.fence + 1
            self.hold(grows, f"fence {event.fence} after {ledger.fence}", position)
            self.hold(event.syncer == envelope.writer, "taken over in another's name", position)
        elif position > 1:
            own = (envelope.fence, envelope.writer) == (ledger.fence, ledger.writer)
            told = f"written by {envelope.writer} under fence {envelope.fence}"
            self.hold(own, f"{told}; {ledger.writer} leads under {ledger.fence}", position)


class LettersOnce(Invariant):
    """An inbox is read in order, and each of its letters becomes one fact at most."""

    name = "letters once"

    def __init__(self) -> None:
        super().__init__()
        self._cursors: dict[str, tuple[str, int]] = {}

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        source = envelope.source
        if source is None:
            return
        life, sequence = self._cursors.get(source.inbox, ("", 0))
        last = sequence if life == source.life else 0
        if isinstance(envelope.event, MessageRefused):  # counted by then, and told later
            self._cursors[source.inbox] = source.life, max(last, source.sequence)
            return
        told = f"letter {source.sequence} of {source.inbox} after letter {last}"
        self.hold(source.sequence > last, told, envelope.position)
        self._cursors[source.inbox] = source.life, source.sequence


class WordsOnce(Invariant):
    """Within a life each word stands on the tape once, in the order in which it was said."""

    name = "words once"

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, int], int] = {}

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case DeltaRefused() if event.reason.startswith("old incarnation"):
                return  # nobody counts the words of a life that is over
            case LearnerLeft() | DeltaOffered() | DeltaRefused() | CheckpointStored():
                key, said = (event.learner, event.incarnation), event.said
            case EvaluationReported() | HardshipInjected() | RunClosing() if event.said:
                key, said = (event.speaker, event.life), event.said
            case _:
                return
        last = self._said.get(key, 0)
        self.hold(said > last, f"{key[0]} says word {said} after {last}", envelope.position)
        self._said[key] = said


class OwnWords(Invariant):
    """A word comes from an inbox, of its learner's own region, and from its newest life."""

    name = "own words"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        position, event = envelope.position, envelope.event
        match event:
            case LearnerJoined():
                source = envelope.source
                at_home = source is not None and source.inbox == event.region
                self.hold(at_home, f"{event.learner} joins {event.region} elsewhere", position)
            case LearnerLeft() | DeltaOffered() | CheckpointStored():
                self._own(ledger, event, position)
                self.hold(envelope.source is not None, f"{event.kind} of no inbox", position)
            case _:
                pass

    def _own(
        self, ledger: Ledger, event: LearnerLeft | DeltaOffered | CheckpointStored, position: int
    ) -> None:
        life = ledger.lives.get(event.learner)
        told = f"{event.learner} speaks as life {event.incarnation}"
        newest = life is not None and life.incarnation == event.incarnation
        self.hold(newest, f"{told}, which is not its newest", position)
        self.hold(life is not None and not life.has_left, f"{told}, which has left", position)
        self.hold(speaker_of(event) == event.learner, told, position)


class LivesInOrder(Invariant):
    """A life joins once, and goes on where the last one ended; slots are given once."""

    name = "lives in order"

    def __init__(self) -> None:
        super().__init__()
        self._slots: dict[str, int] = {}
        self._nonces: dict[str, list[bytes]] = {}

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        position, event = envelope.position, envelope.event
        if isinstance(event, LearnerLost):
            life = ledger.lives.get(event.learner)
            is_silent = event.reason == "silent"
            is_newest = life is not None and life.incarnation == event.incarnation
            is_there = life is not None and (life.is_live if is_silent else not life.has_left)
            told = f"{event.learner} is lost, and was not there"
            self.hold(is_newest and is_there, told, position)
            patience = ledger.opening.run.times.lost_seconds if is_silent else 0.0
            told = f"{event.learner} is lost after {event.silent_seconds:.1f} s"
            self.hold(event.silent_seconds >= patience, told, position)
        if not isinstance(event, LearnerJoined):
            return
        before = ledger.lives.get(event.learner)
        reached = (before.step, before.tokens) if before else (0, 0)
        begins = (event.learner_step, event.tokens_trained)
        self.hold(begins == reached, f"a life begins at {begins}, after {reached}", position)
        slot = self._slots.setdefault(event.learner, len(self._slots))
        self.hold(event.slot == slot, f"{event.learner} gets slot {event.slot}", position)
        nonces = self._nonces.setdefault(event.learner, [])
        self.hold(event.nonce not in nonces, f"{event.learner} joins twice in one life", position)
        nonces.append(event.nonce)
        real = all(said <= made for said, made in zip(event.versions, ledger.versions, strict=True))
        self.hold(real, f"{event.learner} joins at versions that are not made", position)


class DataGoOn(Invariant):
    """A life goes on in its data behind the newest step that was told: no merged step is again."""

    name = "data go on"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event = envelope.event
        if not isinstance(event, LearnerJoined):
            return
        before = ledger.lives.get(event.learner)
        cursor, step = (before.cursor, before.cursor_step) if before else (b"", 0)
        told = f"{event.learner} goes on at {event.cursor!r:.60}; step {step} left {cursor!r:.60}"
        self.hold(event.cursor == cursor, told, envelope.position)
