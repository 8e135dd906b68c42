"""The bytes that each fact names, as checks: which blobs, and what must be true of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.merge.exact import Floats
from decodiloco.merge.fragment import Abandoned, Merged, MergeOrder, merge_fragment
from decodiloco.merge.gates import CORRUPT, MISSING, OF_THE_STORE, UNREACHABLE
from decodiloco.merge.model_digest import model_digest
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import (
    global_key,
    key_of_checkpoint,
    key_of_offer,
    named_by,
    outer_key,
    report_key,
    snapshot_key,
)
from decodiloco.store.tensors import read_tensors
from decodiloco.syncer.drafting import LEFT_OUT_MAX
from decodiloco.syncer.owed import merge_order
from decodiloco.syncer.snapshot import decode_state, encode_state
from decodiloco.syncer.state import State
from replay.blob_checks import (
    Check,
    Part,
    same_bytes,
    small_whole,
    tensors_there,
    tensors_whole,
    told_apart,
    unread,
)
from replay.errors import BlobGone, Differs
from replay.reach import EVERYTHING, Reach
from replay.refold import Folded
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    FragmentMerged,
    MergeAbandoned,
    RunClosed,
    RunOpened,
    SnapshotStored,
)
from streams.manifest import Manifest
from streams.parts import LeftOut

BROKEN = (MISSING, CORRUPT)
"""Reasons after which a delta's bytes are not read: the tape itself says that they are no good."""


@dataclass(frozen=True, slots=True)
class Named:
    """What every check needs: the store, the opening, and why offers were left out, by position.

    `reach` says how far back there are bytes. `read_by`: for each offer that a merge took, and each
    merge whose version a later one begins with, where the merge stands that reads it. `begins`: for
    each such later merge, where the one stands whose version it begins with.
    """

    store: BlobStore
    opening: Opening
    left_out: dict[int, str]
    reach: Reach = EVERYTHING
    read_by: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)

    def is_read_by_merge(self, position: int) -> bool:
        """Whether a merge that is made again reads what this offer or merge made, to its end."""
        return position in self.read_by and self.reach.is_whole(self.read_by[position])

    def reads_of(self, event: FragmentMerged, position: int) -> Reads:
        """What a merge reads that nobody else need read then."""
        deltas = tuple(each for each in event.contributions if self.is_read_by_merge(each))
        begun = self.begins.get(position)
        is_whole = begun is not None and self.reach.is_whole(begun)
        return Reads(deltas, begun if is_whole else None, self.is_read_by_merge(position))


@dataclass(frozen=True, slots=True)
class Reads:
    """What a merge that is made again reads to its end: `deltas`, and the version `begun` with, by
    the positions of the facts that made them.

    `later`: whether a later merge so reads the version which this one makes.
    """

    deltas: tuple[int, ...] = ()
    begun: int | None = None
    later: bool = False

    @property
    def positions(self) -> tuple[int, ...]:
        """The facts whose bytes these are."""
        return self.deltas if self.begun is None else (*self.deltas, self.begun)


NOTHING = Reads()


def checks_of(folded: Folded, named: Named, snapshots: dict[int, State]) -> Iterator[Check]:
    """The checks on bytes that one fact asks for.

    `snapshots` holds the refolded state at every position of which a snapshot is stored. Below the
    horizon there are no bytes but those that are kept, and no merge can be made again.
    """
    event, before = folded.envelope.event, folded.before
    position = folded.envelope.position
    store = named.store
    if not named.reach.has(position):
        return
    if isinstance(event, FragmentMerged) and not named.reach.is_whole(position):
        yield from _kept_version(store, before, event, position)
        return
    match event:
        case RunOpened():
            yield Check(position, lambda: event.opening.bytes)  # read whole to come this far
            for fragment, manifest in enumerate(named.opening.fragments):
                key = global_key(before.run, fragment, 0, manifest)
                tensors = before.layout.of(fragment)
                yield Check(
                    position, partial(tensors_whole, store, key, manifest, position, tensors)
                )
        case DeltaOffered():
            if not named.left_out.get(position, "").startswith(BROKEN):
                delta = (store, key_of_offer(before.run, event), event.manifest, position)
                whole = partial(tensors_whole, *delta)
                if named.is_read_by_merge(position):
                    yield Check(position, partial(tensors_there, *delta), later=whole)
                else:
                    yield Check(position, whole)
        case FragmentMerged():
            judged = (*event.contributions, *fit_to_judge(event.left_out))
            order = merge_order(before, event.round, contributions=judged)
            reads = named.reads_of(event, position)
            again = partial(merged_again, store, order, event, position, reads)
            later = partial(_version_whole, store, before, event, position) if reads.later else None
            yield Check(position, again, True, later, reads.positions)
        case MergeAbandoned():
            fit, lost = fit_to_judge(event.left_out), {each.position for each in event.left_out}
            window = before.rounds[event.round].offers
            judged = tuple(p for p in window if p in fit or p not in lost)
            if fit:  # held against the others, so these are read, too
                order = merge_order(before, event.round, contributions=judged)
                yield Check(position, partial(abandoned_again, store, order, event, position))
        case CheckpointStored():
            key = key_of_checkpoint(before.run, event)
            yield Check(position, partial(tensors_whole, store, key, event.manifest, position))
        case SnapshotStored():
            state = snapshots[event.position]
            yield Check(position, partial(snapshot_again, named, state, event, position))
        case RunClosed():
            yield Check(position, partial(_model_again, store, before, event, position))
        case _:
            pass


def _kept_version(
    store: BlobStore, before: State, event: FragmentMerged, position: int
) -> Iterator[Check]:
    """A version with which the merges above the horizon begin: its blobs are there, and whole."""
    yield Check(position, partial(_version_whole, store, before, event, position))
    key, manifest = named_by(before.run, event)[2]
    yield Check(position, lambda: len(small_whole(store, key, manifest, position)))


def _version_whole(store: BlobStore, before: State, event: FragmentMerged, position: int) -> int:
    """Reads a version's parameters and momentum to their ends."""
    tensors, named = before.layout.of(event.fragment), named_by(before.run, event)
    return sum(tensors_whole(store, *each, position, tensors) for each in named[:2])


def merged_again(
    store: BlobStore,
    order: MergeOrder,
    event: FragmentMerged,
    position: int,
    reads: Reads = NOTHING,
) -> int:
    """Makes a merge again from its window's stored deltas; its three blobs are those of the tape.

    Offers that the tape calls unfit are judged again too: they must be left out for the same
    reasons. Parameters and momentum that a later merge reads, and checks by their digests, are not
    compared here byte by byte: their headers are. Returns the bytes of the blobs that were
    compared, and of what is in `reads`: what a merge took was checked to its last byte.
    """
    again = _again(store, order, position)
    _check_left_out(again.left_out, event.left_out, position)
    if isinstance(again, Merged) and again.doubted != event.doubted:
        raise Differs(
            f"made again, the merge doubts {list(again.doubted)}; the tape says "
            f"{list(event.doubted)}",
            position,
        )
    if not isinstance(again, Merged) or again.contributions != event.contributions:
        taken = again.contributions if isinstance(again, Merged) else ()
        raise Differs(
            f"made again, the merge takes the offers {list(taken)}; the tape says "
            f"{list(event.contributions)}",
            position,
        )
    if again.outer_gradient_norm != event.outer_gradient_norm:
        raise Differs(
            f"the outer gradient's norm is {again.outer_gradient_norm!r}, the tape says "
            f"{event.outer_gradient_norm!r}",
            position,
        )
    size_bytes = sum(_read_bytes(order, reads))
    for (key, parts), name, made, said in zip(
        again.blobs(order),
        ("parameters", "momentum", "report"),
        (again.parameters.manifest, again.momentum.manifest, again.report.manifest),
        (event.parameters, event.momentum, event.report),
        strict=True,
    ):
        if made != said:
            raise Differs(
                f"made again, the digest of the {name} is {made.digest.hex()[:16]}; the tape says "
                f"{said.digest.hex()[:16]}. The same deltas give other bytes here than they gave "
                f"the syncer ({_told_apart(store, order, name, said, parts)}): compare the two "
                "builds",
                position,
            )
        if reads.later and name != "report":
            tensors_there(store, key, said, position)
        else:
            size_bytes += same_bytes(store, key, said, parts, position)
    return size_bytes


def _read_bytes(order: MergeOrder, reads: Reads) -> Iterator[int]:
    """How many bytes each blob has that a merge read for others, too."""
    for one in order.contributions:
        if one.position in reads.deltas:
            yield one.manifest.bytes
    if reads.begun is not None:
        assert order.momentum is not None, "what a merge made has momentum"
        yield order.parameters.bytes
        yield order.momentum.bytes


def _told_apart(
    store: BlobStore, order: MergeOrder, name: str, said: Manifest, parts: Sequence[Part]
) -> str:
    """How the stored blob differs; its key carries the digest that the tape says."""
    key = {
        "parameters": global_key(order.run, order.fragment, order.version, said),
        "momentum": outer_key(order.run, order.fragment, order.version, said),
        "report": report_key(order.run, order.round, said),
    }[name]
    try:
        return told_apart(store, key, said, parts)
    except (BlobCorrupt, BlobMissing, Differs) as error:
        return str(error)


def abandoned_again(
    store: BlobStore, order: MergeOrder, event: MergeAbandoned, position: int
) -> int:
    """Judges again a window whose merge was abandoned; its bytes were counted.

    A fact that could not tell all of the unfit tells the first of them.
    """
    left_out = _again(store, order, position).left_out
    if len(event.left_out) == LEFT_OUT_MAX:
        last = max(each.position for each in event.left_out)
        left_out = tuple(each for each in left_out if each.position <= last)
    _check_left_out(left_out, event.left_out, position)
    return 0


def _again(store: BlobStore, order: MergeOrder, position: int) -> Merged | Abandoned:
    try:
        again = merge_fragment(order, store, sleep=_at_once)
    except (BlobCorrupt, BlobMissing) as error:
        raise unread(error)(f"the merge cannot be made again: {error}", position) from None
    except AssertionError as error:
        raise Differs(f"the merge cannot be made again ({error})", position) from error
    for each in again.left_out:
        if each.reason.startswith(UNREACHABLE):
            raise StoreUnreachable(
                f"position {position}: the merge was not made again: {each.reason}"
            )
    return again


def _check_left_out(found: tuple[LeftOut, ...], said: tuple[LeftOut, ...], position: int) -> None:
    """An offer is left out again for the same reason, and no other one is."""
    reasons = {each.position: each.reason for each in found}
    for gone in sorted(each for each in reasons if reasons[each].startswith(MISSING)):
        raise BlobGone(
            f"made again, the merge leaves out the offer at {gone}: {reasons[gone]}", position
        )
    for each in said:
        if each.reason.startswith(OF_THE_STORE):
            continue
        reason = reasons.pop(each.position, None)
        if reason != each.reason:
            raise Differs(
                f"the tape leaves out the offer at {each.position}: {each.reason}; made again, "
                + ("its bytes pass" if reason is None else f"the reason is: {reason}"),
                position,
            )
    for left_out in sorted(reasons):
        raise Differs(
            f"made again, the merge leaves out the offer at {left_out}: {reasons[left_out]}",
            position,
        )


def snapshot_again(named: Named, state: State, event: SnapshotStored, position: int) -> int:
    """A stored snapshot is the refolded state of its position, to the byte, and decodes to it."""
    key = snapshot_key(state.run, event.position, event.manifest)
    payload = small_whole(named.store, key, event.manifest, position)
    try:
        stored = decode_state(named.opening, payload)
    except BlobCorrupt as error:
        raise Differs(str(error), position, key) from None
    if payload != encode_state(state) or stored != state:
        raise Differs(
            f"the snapshot is not the state that position {event.position} folds to", position, key
        )
    return len(payload)


def _model_again(store: BlobStore, state: State, event: RunClosed, position: int) -> int:
    """The digest of the closed model, from the stored parameters; they were counted already."""

    def tensors() -> Iterator[tuple[str, Floats]]:
        for fragment, manifest in enumerate(state.parameters):
            key = global_key(state.run, fragment, state.versions[fragment], manifest)
            yield from read_tensors(store, key, manifest).items()

    try:
        found = model_digest(state.layout, tensors())
    except (BlobCorrupt, BlobMissing) as error:
        raise unread(error)(str(error), position) from None
    if found != event.digest:
        raise Differs(
            f"the closed model has digest {found.hex()[:16]}; the tape says "
            f"{event.digest.hex()[:16]}",
            position,
        )
    return 0


def fit_to_judge(left_out: tuple[LeftOut, ...]) -> tuple[int, ...]:
    """The offers whose own bytes were at fault: these are still there, and judged alike."""
    return tuple(each.position for each in left_out if not each.reason.startswith(OF_THE_STORE))


def _at_once(seconds: float) -> None:
    """A finished merge's deltas are all there: what is not there now will not come."""
