"""One fragment merged from stored deltas: a streaming pass, the byte gates, the outer step.

No state but its inputs: the same order and the same bytes give the same bytes, on any machine
and with any number of threads. Stores nothing, and must not know rounds, tapes or learners
beyond what the order says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.merge import gates
from decodiloco.merge.ahead import Readers
from decodiloco.merge.fetch import PatientStore
from decodiloco.merge.one_pass import Before, Fault, Pass, prove_this_thread, why_unread
from decodiloco.merge.order import Abandoned, Contribution, Merged, MergeOrder, MergeSettings
from decodiloco.merge.report import decode_report
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, outer_key, report_key
from decodiloco.store.small import read_small
from decodiloco.store.tensors import TensorBlob, open_tensors
from streams.parts import LeftOut

__all__ = [
    "Abandoned",
    "Contribution",
    "MergeOrder",
    "MergeSettings",
    "Merged",
    "merge_fragment",
]


def merge_fragment(
    order: MergeOrder,
    store: BlobStore,
    threads: int = 1,
    sleep: Callable[[float], None] = time.sleep,
) -> Merged | Abandoned:
    """Merge what passes the gates, if that is a quorum, and take the outer step.

    A delta that is absent after `fetch_seconds_max` of waiting, corrupt, of other tensors, not
    finite, or whose header lies is left out with its reason. The header's sums of squares are
    trusted at first and recomputed on the way; when one was a lie, the pass starts again
    without the liar. So it does without a delta that is far too long or points elsewhere than the
    others, as long as these are more than half. Memory: of each delta the chunk that is merged, and
    those that are read meanwhile (`decodiloco.merge.ahead`); and the new version, if it is short: a
    long one waits in a file (`decodiloco.store.aside`).
    Raises BlobMissing, BlobCorrupt or StoreUnreachable when the fragment itself cannot be read,
    StoreUnreachable when the new version finds no room, Disagreement when this thread's
    arithmetic is not ours.
    """
    _check(order)
    prove_this_thread()
    patient = PatientStore(store, order.settings.fetch_seconds_max, sleep)
    before = _open_before(order, store, patient)
    deltas, unfit = _open_deltas(order, patient)
    astray: dict[int, str] = {}  # those that are left out for how they stand to the others
    with Readers(store) as readers:
        while len(deltas) - len(astray) >= order.quorum:
            attempt = Pass(order, before, _without(deltas, astray), readers)
            astray |= (strange := attempt.too_long())
            if strange:
                continue
            try:
                made = attempt.run(threads)
            except Fault as fault:
                unfit |= fault.reasons
                deltas = _without(deltas, fault.reasons)
                astray = {}  # judged anew, as if the unfit one had never been there
                continue
            astray |= (strange := attempt.misdirected(made, len(astray)))
            if not strange:
                return attempt.merged(made, _left_out(unfit | astray))
    return Abandoned(_left_out(unfit | astray))


def _check(order: MergeOrder) -> None:
    learners = [one.learner for one in order.contributions]
    assert learners == sorted(set(learners)), "contributions in learner-id order, one a learner"
    names = [tensor.name for tensor in order.tensors]
    assert names and names == sorted(set(names)), "tensors sorted by name, each once"
    assert order.quorum >= 1 and order.version >= 1
    assert (order.momentum is None) == (order.version == 1), "momentum begins with version 1"
    assert (order.report is None) == (order.report_round is None)


def _open_before(order: MergeOrder, store: BlobStore, patient: PatientStore) -> Before:
    run, fragment, version = order.run, order.fragment, order.version - 1
    parameters = open_tensors(
        patient, global_key(run, fragment, version, order.parameters), order.parameters
    )
    momentum = None
    if order.momentum is not None:
        key = outer_key(run, fragment, version, order.momentum)
        momentum = open_tensors(patient, key, order.momentum)
    for blob in (parameters, momentum):
        shapes = None if blob is None else tuple((name, blob.shape(name)) for name in blob.names)
        if blob is not None and shapes != tuple((one.name, one.shape) for one in order.tensors):
            raise BlobCorrupt(f"blob {blob.key} does not hold the tensors of fragment {fragment}")
    report = None
    if order.report is not None and order.report_round is not None:
        key = report_key(run, order.report_round, order.report)
        report = decode_report(read_small(store, key, order.report))
    return Before(parameters, momentum, report)


def _open_deltas(
    order: MergeOrder, patient: PatientStore
) -> tuple[dict[int, TensorBlob], dict[int, str]]:
    """The deltas whose headers pass, and why others do not; both by position."""
    opened: dict[int, TensorBlob] = {}
    reasons: dict[int, str] = {}
    for one in order.contributions:
        reason = gates.check_codec(one.manifest.codec, order.settings.delta_codec)
        if reason is None:
            try:
                blob = open_tensors(patient, one.key, one.manifest)
            except (BlobMissing, BlobCorrupt, StoreUnreachable) as error:
                reason = why_unread(error)
            else:
                reason = gates.check_header(blob, order.tensors)
        if reason is None:
            opened[one.position] = blob
        else:
            reasons[one.position] = reason
    return opened, reasons


def _without(deltas: Mapping[int, TensorBlob], gone: Mapping[int, str]) -> dict[int, TensorBlob]:
    return {position: blob for position, blob in deltas.items() if position not in gone}


def _left_out(reasons: Mapping[int, str]) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(position=position, reason=reasons[position]) for position in sorted(reasons)
    )
