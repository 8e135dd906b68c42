"""The proof of a run: its tape folded again, its merges made again, its blobs read whole.

A merge is made again from the stored bytes that the tape names by their digests, not from what was
made again before it: so all merges may be made at once. Outcomes are taken in the order of the
tape, so that any number of threads gives the same result and the same first difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from decodiloco.merge.one_pass import prove_this_thread
from decodiloco.merge.self_test import self_test
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key
from decodiloco.syncer.state import State
from replay.blob_checks import Check
from replay.errors import BlobGone, Differs, TapeCorrupt
from replay.fact_bytes import Named, checks_of
from replay.facts_check import FactsCheck, FateRow
from replay.place import Place
from replay.progress import Tell
from replay.reach import EVERYTHING, Reach, reach_of
from replay.refold import refold
from replay.state import opened_by, read_opening
from replay.synthetic.mark import Marks
from streams.envelope import Envelope
from streams.errors import ChainBroken, Corrupt
from streams.events import FragmentMerged, MergeAbandoned, RunOpened, SnapshotStored
from streams.parts import LeftOut

AHEAD_MAX = 4
"""Checks that wait for each thread: enough to keep it busy, few enough to hold in memory."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that is not what the tape says: where, and what to do about it."""

    what: str
    position: int | None = None
    key: str | None = None


@dataclass(slots=True)
class Proof:
    """What a verification found. `merges` are those on the tape, `merges_checked` those re-made.

    `horizon` is the position up to which bytes were let go of, 0 where all are kept.
    Of a `synthetic` tape only the opening's bytes were ever made: the rest of it is facts.
    """

    run: str
    place: str
    store: str = ""
    events: int = 0
    merges: int = 0
    merges_checked: int = 0
    bytes_checked: int = 0
    first_difference: Difference | None = None
    horizon: int = 0
    fates: tuple[FateRow, ...] = ()
    closed: bool = False
    synthetic: bool = False

    @property
    def ok(self) -> bool:
        """Whether all agreed."""
        return self.first_difference is None


@dataclass(slots=True)
class Survey:
    """A first pass over the tape: its chain, its length, and what later facts say of earlier."""

    events: int = 0
    merges: int = 0
    left_out: dict[int, str] = field(default_factory=dict)
    read_by: dict[int, int] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)
    snapshots: dict[int, int] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    reach: Reach = EVERYTHING
    _newest: dict[int, int] = field(default_factory=dict)  # by fragment, where it was merged last

    def note(self, envelope: Envelope) -> None:
        """Takes one record in."""
        self.events = envelope.position
        self.marks.note(envelope)
        self.reach = self.reach.then(envelope)
        match envelope.event:
            case FragmentMerged(left_out=left_out):
                self.merges += 1
                self._note_reads(envelope.event, envelope.position)
                self._note_left_out(left_out)
            case MergeAbandoned(left_out=left_out):
                self._note_left_out(left_out)
            case SnapshotStored(position=position):
                self.snapshots[position] = self.snapshots.get(position, 0) + 1
            case _:
                pass

    def let_go(self, envelope: Envelope, states: dict[int, State]) -> None:
        """Takes out a state once the last snapshot of it is under check."""
        if isinstance(envelope.event, SnapshotStored):
            position = envelope.event.position
            self.snapshots[position] -= 1
            if self.snapshots[position] == 0:
                del states[position]

    def _note_reads(self, event: FragmentMerged, position: int) -> None:
        """What this merge reads: the deltas it took, and the version it begins with."""
        self.read_by.update(dict.fromkeys(event.contributions, position))
        before = self._newest.get(event.fragment)
        if before is not None:
            self.read_by[before] = position
            self.begins[position] = before
        self._newest[event.fragment] = position

    def _note_left_out(self, left_out: tuple[LeftOut, ...]) -> None:
        for each in left_out:
            self.left_out[each.position] = each.reason


def verify_place(place: Place, threads: int, tell: Tell) -> Proof:
    """Proves a run from its tape and its blobs, up to the first difference; so many merges at once.

    Raises RulesUnknown for facts by rules that this build does not know, and Trouble when tape
    or store cannot be reached, or the horizon rose above what was being read. All else that is
    wrong is the proof's `first_difference`.
    """
    proof = Proof(place.run, place.told)
    try:
        survey = Survey()
        opened: RunOpened | None = None
        for envelope in place.envelopes():
            opened = opened or opened_by(envelope, place)
            survey.note(envelope)
            proof.events, proof.merges = survey.events, survey.merges
            proof.synthetic = survey.marks.is_synthetic
            proof.horizon = survey.reach.position
        if opened is None:
            opened_by(None, place)
        assert opened is not None
        store = place.open_store(opened)
    except Corrupt as error:
        proof.first_difference = difference(error)
        return proof
    try:
        proof.store = store.url
        _prove(place, store, opened, survey, threads, proof, tell)
    finally:
        store.close()
    return proof


def _prove(
    place: Place,
    store: BlobStore,
    opened: RunOpened,
    survey: Survey,
    threads: int,
    proof: Proof,
    tell: Tell,
) -> None:
    try:
        opening = read_opening(store, opened)
    except Corrupt as error:
        proof.first_difference = difference(error)
        return
    checks = _checks(place, store, opening, survey, proof, tell)
    with _Bench(proof, threads) as bench:
        try:
            while (check := _next(checks, bench)) is not None:
                bench.begin(check)
            bench.settle()
        except Corrupt as error:
            first = bench.first(error)
            _check_horizon(place, survey, first)
            proof.first_difference = difference(first)
            proof.fates, proof.closed = (), False  # the end of the tape may have been seen by then


def _next(checks: Iterator[Check], bench: _Bench) -> Check | None:
    """The next check, or None at the end of the tape; raises the first difference up to there."""
    try:
        return next(checks, None)
    except Corrupt:
        bench.settle()  # what stands before it on the tape may differ, and comes first
        raise


class _Bench:
    """Where checks are carried out, so many at once, and settled in the order of the tape.

    What waits holds no bytes: in memory is what so many merges hold. A delta, or a version, that a
    merge reads is not read twice; the rest of its own check is done here only if a difference
    behind it was found.
    """

    def __init__(self, proof: Proof, threads: int) -> None:
        self._proof = proof
        self._waiting_max = AHEAD_MAX * threads
        self._pool = ThreadPoolExecutor(threads, "verify", initializer=prove_this_thread)
        self._pending: deque[tuple[Check, Future[int]]] = deque()
        self._unread: dict[int, Callable[[], int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Waits for the checks that run; those that wait are not begun any more."""
        self._pool.shutdown(cancel_futures=True)

    def begin(self, check: Check) -> None:
        """Starts a check as soon as a thread is free; waits while too many wait."""
        self._pending.append((check, self._pool.submit(check.run)))
        self.settle(self._waiting_max)

    def settle(self, left_max: int = 0) -> None:
        """Takes the outcomes of the oldest checks, until so few are left.

        Raises the Corrupt of the first that differs.
        """
        while len(self._pending) > left_max:
            check, outcome = self._pending.popleft()
            size_bytes = outcome.result()
            self._proof.bytes_checked += size_bytes
            self._proof.merges_checked += check.is_merge
            if check.later is not None:
                self._unread[check.position] = check.later
            for position in check.reads:
                self._unread.pop(position, None)

    def first(self, error: Corrupt) -> Corrupt:
        """The first difference on the tape, when `error` is the first among what was settled.

        A delta or a version before it may differ that only a merge behind it, or this very one, was
        to read.
        """
        at = difference(error).position
        for position, check_whole in self._unread.items():
            if at is None or position < at:
                try:
                    check_whole()
                except Corrupt as earlier:
                    return earlier
        return error


def _checks(
    place: Place,
    store: BlobStore,
    opening: Opening,
    survey: Survey,
    proof: Proof,
    tell: Tell,
) -> Iterator[Check]:
    """Every check on bytes, in the order of the tape; raises where the facts alone differ."""
    facts = FactsCheck(self_test())
    named = Named(
        store, opening, survey.left_out, survey.reach, survey.read_by, survey.begins
    )  # fmt: skip
    snapshots: dict[int, State] = {}
    last: State | None = None
    records = _until(place.envelopes(), survey.events)
    for folded in refold(records, opening, facts.tell):
        last = folded.after
        if last.position in survey.snapshots:
            snapshots[last.position] = last
        if not survey.marks.is_synthetic or isinstance(folded.envelope.event, RunOpened):
            yield from checks_of(folded, named, snapshots)
        elif isinstance(folded.envelope.event, FragmentMerged):
            _check_unmade(store, place.run, folded.envelope.position, folded.envelope.event)
        survey.let_go(folded.envelope, snapshots)
        tell(last.position, survey.events)
    assert last is not None and last.position == survey.events
    proof.fates = facts.fates(last)
    proof.closed = last.closed is not None


def _check_horizon(place: Place, survey: Survey, error: Corrupt) -> None:
    """Raises BeyondHorizon when a run that goes on has let go of what is missing since the survey.

    The tape is read once more, so a tape that is itself corrupt is left to the first difference.
    """
    at = difference(error).position
    if at is None or not isinstance(error, BlobGone):
        return
    reach = reach_of(place.envelopes())
    if reach != survey.reach and not reach.is_whole(at):
        told = f"position {at}, which was being verified,"
        raise reach.beyond(place.run, told) from error


def _check_unmade(store: BlobStore, run: str, position: int, event: FragmentMerged) -> None:
    """A tape that says it is synthetic and has its merges' bytes is a real one, and must be proved.

    Raises Differs when these are in the store.
    """
    key = global_key(run, event.fragment, event.version, event.parameters)
    if store.size(key) is not None:
        raise Differs(f"the tape says that it is synthetic, and blob {key} was made", position)


def _until(envelopes: Iterator[Envelope], last: int) -> Iterator[Envelope]:
    """The records that the survey saw: a live tape grows on."""
    for envelope in envelopes:
        if envelope.position > last:
            return
        yield envelope


def difference(error: Corrupt) -> Difference:
    """What a failure says is wrong, and where."""
    match error:
        case Differs():
            return Difference(error.what, error.position, error.key)
        case TapeCorrupt() | ChainBroken():
            return Difference(str(error), error.position)
        case _:
            return Difference(str(error))
