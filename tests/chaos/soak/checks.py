"""What must hold after a soak: the tape against the journals, the invariants, the proof, the end.

Each check gives figures with their bounds. Knows tapes, stores and journals; no process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from replay.errors import InvariantBroken
from replay.invariants.all_of_them import Invariants
from replay.place import Place
from replay.progress import silently
from replay.state import opened_by, read_opening
from replay.verify import Proof, verify_place
from replay.verify_report import COLUMNS
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    Event,
    HardshipInjected,
    LearnerJoined,
    LearnerLeft,
    RunClosed,
    RunClosing,
)
from tests.chaos.soak.journal import entries

Identity = tuple[str, str, object, object]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report: what was found, and what it must be.

    A `timed` one depends on the machine, too: it is a measurement, and no test.
    """

    name: str
    found: str
    bound: str
    met: bool
    detail: str = ""
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """An acknowledged word: which, and its letters: each one's sequence and what it had seen."""

    identity: Identity
    letters: tuple[tuple[int, int], ...]


def words_of(folder: Path) -> list[Heard]:
    """All words that inboxes acknowledged, each once, from the publishers' journals."""
    letters: dict[Identity, set[tuple[int, int]]] = {}
    for path in sorted((folder / "journals").glob("inbox-*.jsonl")):
        for entry in entries(path):
            life = entry.get("nonce", entry.get("life"))
            identity = (entry["kind"], entry["speaker"], life, entry.get("said"))
            letter = (entry["acknowledged"], entry.get("seen", 0))
            letters.setdefault(identity, set()).add(letter)
    return [Heard(key, tuple(sorted(letters[key]))) for key in sorted(letters, key=str)]


def appends_of(folder: Path) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Digest to position of every record that a syncer sent, and of those it was told of."""
    attempted: dict[bytes, int] = {}
    acknowledged: dict[bytes, int] = {}
    for path in sorted((folder / "journals").glob("tape-*.jsonl")):
        for entry in entries(path):
            for into, name in ((attempted, "attempted"), (acknowledged, "acknowledged")):
                for digest, position in entry.get(name, ()):
                    into[bytes.fromhex(digest)] = position
    return attempted, acknowledged


def identity_on_tape(event: Event) -> Identity | None:
    """The word that a fact was, if it was one. An offer and its refusal are the same word."""
    match event:
        case LearnerJoined():
            return (event.kind, event.learner, event.nonce.hex(), None)
        case DeltaOffered() | DeltaRefused():
            return ("delta_offered", event.learner, event.incarnation, event.said)
        case LearnerLeft() | CheckpointStored():
            return (event.kind, event.learner, event.incarnation, event.said)
        case HardshipInjected() | EvaluationReported():
            return (event.kind, event.speaker, event.life, event.said)
        case RunClosing():
            return (event.kind, event.speaker, event.life, event.said)
        case _:
            return None


def words_lost(heard: Sequence[Heard], tape: Sequence[Envelope]) -> tuple[list[str], list[str]]:
    """Acknowledged words that do not stand on the tape, and words that stand there twice.

    Only these may be missing: what a life said behind its successor's join in the inbox, a join
    that had not seen a join before it, and words but farewells behind the run's close.
    """
    standing: dict[Identity, int] = {}
    twice: list[str] = []
    lives: dict[str, list[tuple[int, int]]] = {}
    closed, read_to = False, 0
    for envelope in tape:
        identity = identity_on_tape(envelope.event)
        if identity is not None:
            if identity in standing and not _of_old_life(envelope.event):
                twice.append(f"{identity} at {standing[identity]} and {envelope.position}")
            standing[identity] = envelope.position
        closed = closed or isinstance(envelope.event, RunClosed)
        if envelope.source is None:
            continue
        if not closed:
            read_to = max(read_to, envelope.source.sequence)
        if isinstance(envelope.event, LearnerJoined):
            joined = (envelope.position, envelope.source.sequence)
            lives.setdefault(envelope.event.learner, []).append(joined)
    lost = []
    for word in heard:
        joins = lives.get(word.identity[1], ())
        late = read_to if closed and word.identity[0] != "learner_left" else None
        if word.identity not in standing and not all(
            _excused(word.identity, letter, joins, late) for letter in word.letters
        ):
            lost.append(f"{word.identity} in letters {word.letters}")
    return lost, twice


def _of_old_life(event: Event) -> bool:
    """A late copy of a word of a life that is over: recorded as refused, and counted by nobody."""
    return isinstance(event, DeltaRefused) and event.reason.startswith("old incarnation")


def _excused(
    identity: Identity,
    letter: tuple[int, int],
    joins: Iterable[tuple[int, int]],
    late: int | None,
) -> bool:
    """Whether a letter may have been passed over; `late` is the last one read before the close."""
    sequence, seen = letter
    if late is not None and sequence > late:
        return True
    kind, _, life, _ = identity
    newer_than = seen if kind == "learner_joined" else life
    assert isinstance(newer_than, int)
    return any(position > newer_than and earlier < sequence for position, earlier in joins)


def invariants_hold(place: Place, folder: Path) -> tuple[Figure, Mapping[str, int]]:
    """Every invariant over facts and bytes, with the journals of the syncers."""
    invariants: Invariants | None = None
    try:
        for envelope in place.envelopes():
            if invariants is None:
                opened = opened_by(envelope, place)
                store = place.open_store(opened)
                invariants = Invariants(read_opening(store, opened), store)
            invariants.tell(envelope)
        assert invariants is not None, "a soak's tape is not empty"
        invariants.end(*appends_of(folder))
    except InvariantBroken as broken:
        return Figure("invariants", "one broke", "all hold", False, str(broken)), {}
    counts = {name: count for name, count in sorted(invariants.counts().items()) if count}
    return Figure("invariants", f"{len(counts)} checked, all hold", "all hold", True), counts


def proved(place: Place) -> tuple[Figure, Figure, Proof]:
    """`replay verify`, in this process; and its table of fates, added up."""
    proof = verify_place(place, 1, silently)
    difference = proof.first_difference
    told = "" if difference is None else f"position {difference.position}: {difference.what}"
    found = f"{proof.merges_checked} of {proof.merges} merges, {proof.events} facts"
    verified = Figure("replay verify", found, "agrees", proof.ok and proof.closed, told)
    odd = [
        f"{row.learner}, fragment {row.fragment}: {row.fates} of {row.trained}"
        for row in proof.fates
        if sum(row.fates[name] for name in COLUMNS) != row.trained
    ]
    rows = f"{len(proof.fates) - len(odd)} of {len(proof.fates)} rows"
    adds_up = Figure("tokens add up", rows, "all", bool(proof.fates) and not odd, "; ".join(odd))
    return verified, adds_up, proof


def ended_alike(tape: Sequence[Envelope], learners: Sequence[str]) -> Figure:
    """Every learner left with exactly the model that the run was closed with."""
    closed = [each.event for each in tape if isinstance(each.event, RunClosed)]
    left = {
        each.event.learner: each.event.digest
        for each in tape
        if isinstance(each.event, LearnerLeft) and each.event.reason == "finished"
    }
    same = [name for name in learners if closed and left.get(name) == closed[0].digest]
    return Figure(
        "learners that end with the run's model",
        f"{len(same)} of {len(learners)}",
        "all",
        len(same) == len(learners),
        ", ".join(sorted(set(learners) - set(same))),
    )


def said_before(tape: Sequence[Envelope], faults: int) -> Figure:
    """Each fault that was carried out stands on the tape as a hardship."""
    told = sum(isinstance(each.event, HardshipInjected) for each in tape)
    return Figure("faults that the tape names", f"{told} of {faults}", "all", told == faults)


def none_lost(folder: Path, tape: Sequence[Envelope]) -> list[Figure]:
    """The tape against the journals of all who spoke and all who wrote."""
    heard = words_of(folder)
    lost, twice = words_lost(heard, tape)
    attempted, acknowledged = appends_of(folder)
    standing = {envelope.digest for envelope in tape}
    gone = sum(digest not in standing for digest in acknowledged)
    return [
        Figure(
            f"acknowledged words lost, of {len(heard)}", str(len(lost)), "0", not lost,
            "; ".join(lost[:3]),
        ),
        Figure("words on the tape twice", str(len(twice)), "0", not twice, "; ".join(twice[:3])),
        Figure(
            f"acknowledged records lost, of {len(acknowledged)}", str(gone), "0", gone == 0
        ),
        Figure(
            "records that nobody sent",
            str(sum(each.digest not in attempted for each in tape[1:])),
            "0",
            all(each.digest in attempted for each in tape[1:]),
        ),
    ]  # fmt: skip
