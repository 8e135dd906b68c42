"""One fragment merged from stored deltas: a streaming pass, the byte gates, the outer step.

No state but its inputs: the same order and the same bytes give the same bytes, on any machine
and with any number of threads. Stores nothing, and must not know rounds, tapes or learners
beyond what the order says.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.fragments.layout import Tensor
from decodiloco.merge import gates
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats, shares, tree_sum
from decodiloco.merge.fetch import PatientStore
from decodiloco.merge.outer import outer_chunk
from decodiloco.merge.report import (
    Contributor,
    Report,
    TensorReport,
    decode_report,
    encode_report,
    next_history,
)
from decodiloco.merge.rules import Clipping, add_up, finish, plan_merge, token_weight
from decodiloco.merge.self_test import self_test
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, outer_key, report_key
from decodiloco.store.small import read_small
from decodiloco.store.tensors import Encoded, Part, TensorBlob, encode_tensors, open_tensors
from streams.events import LeftOut
from streams.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Contribution:
    """One admitted offer: its position on the tape, its counts, and where its delta lies."""

    position: int
    learner: str
    tokens: int
    inner_steps: int
    key: str
    manifest: Manifest

    @property
    def weight(self) -> Fraction:
        """tokens^2 / inner_steps, exactly."""
        return token_weight(self.tokens, self.inner_steps)


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """What the run's config says about merging."""

    lr: float
    mu: float
    norm_clip: float | None
    delta_codec: str
    fragment_codec: str
    fetch_seconds_max: float


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """All that a merge depends on: who contributes, and the fragment as it was.

    `contributions` are in learner-id order, one a learner. `parameters` are those of version
    `version - 1`; `momentum` is None where it is zero, at version 1. `report` is that of the
    fragment's last merge, made in round `report_round`; both None at version 1.
    """

    run: str
    round: int
    fragment: int
    version: int
    tensors: tuple[Tensor, ...]
    quorum: int
    contributions: tuple[Contribution, ...]
    parameters: Manifest
    momentum: Manifest | None
    report: Manifest | None
    report_round: int | None
    settings: MergeSettings


@dataclass(frozen=True, slots=True)
class Merged:
    """The next version of a fragment, ready to be stored, and who is in it (by position)."""

    contributions: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    parameters: Encoded
    momentum: Encoded
    report: Encoded
    outer_gradient_norm: float

    def blobs(self, order: MergeOrder) -> list[tuple[str, tuple[Part, ...]]]:
        """Keys and parts of parameters, momentum and report, in the order to store them."""
        run, fragment, version = order.run, order.fragment, order.version
        return [
            (global_key(run, fragment, version, self.parameters.manifest), self.parameters.parts),
            (outer_key(run, fragment, version, self.momentum.manifest), self.momentum.parts),
            (report_key(run, order.round, self.report.manifest), self.report.parts),
        ]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Fewer than the quorum passed the byte gates."""

    left_out: tuple[LeftOut, ...]


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
    without the liar. Memory: the new version, and a chunk of each delta.
    Raises BlobMissing, BlobCorrupt or StoreUnreachable when the fragment itself cannot be read,
    Disagreement when this thread's arithmetic is not ours.
    """
    _check(order)
    _prove_this_thread()
    patient = PatientStore(store, order.settings.fetch_seconds_max, sleep)
    before = _open_before(order, store, patient)
    deltas, reasons = _open_deltas(order, patient)
    while len(deltas) >= order.quorum:
        attempt = _Pass(order, before, deltas)
        try:
            made = attempt.run(threads)
        except _Fault as fault:
            reasons.update(fault.reasons)
            deltas = {place: blob for place, blob in deltas.items() if place not in fault.reasons}
            continue
        return attempt.merged(made, _left_out(reasons))
    return Abandoned(_left_out(reasons))


class _Fault(Exception):
    """Deltas that turned out, during a pass, to be unfit: position -> reason."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = dict(reasons)


@dataclass(frozen=True, slots=True)
class _Before:
    """The fragment as it was, opened."""

    parameters: TensorBlob
    momentum: TensorBlob | None
    report: Report | None

    def history(self, name: str) -> tuple[float, ...]:
        return () if self.report is None else self.report.history(name)


@dataclass(frozen=True, slots=True)
class _Made:
    """One tensor's new version."""

    parameter: Floats
    momentum: Floats
    report: TensorReport


class _Pass:
    """One attempt at the whole fragment with a fixed set of deltas (position -> blob)."""

    def __init__(
        self, order: MergeOrder, before: _Before, deltas: Mapping[int, TensorBlob]
    ) -> None:
        self._order = order
        self._before = before
        self._deltas = deltas
        self._members = [one for one in order.contributions if one.position in deltas]
        self._weights = [one.weight for one in self._members]

    def run(self, threads: int) -> list[_Made]:
        """All tensors, in order; with threads, several at a time.

        The fault that is raised is that of the first faulty tensor, whatever the threads.
        """
        tensors = self._order.tensors
        if threads == 1:
            return [self._tensor(tensor) for tensor in tensors]
        pool = ThreadPoolExecutor(threads, thread_name_prefix="merge")
        try:
            return list(pool.map(self._tensor_in_thread, tensors))
        finally:
            pool.shutdown(cancel_futures=True)

    def merged(self, made: list[_Made], left_out: tuple[LeftOut, ...]) -> Merged:
        """The blobs of the new version."""
        order = self._order
        names = [tensor.name for tensor in order.tensors]
        members = zip(self._members, shares(self._weights), strict=True)
        payload, manifest = encode_report(
            Report(
                order.round,
                order.fragment,
                order.version,
                tuple(Contributor(one.position, one.learner, share) for one, share in members),
                tuple(one.report for one in made),
            )
        )
        parameters = {name: one.parameter for name, one in zip(names, made, strict=True)}
        momentum = {name: one.momentum for name, one in zip(names, made, strict=True)}
        return Merged(
            tuple(one.position for one in self._members),
            left_out,
            encode_tensors(parameters, order.settings.fragment_codec),
            encode_tensors(momentum, "fp32"),
            Encoded((payload,), manifest),
            _norm_of_all([one.report.outer_gradient_norm for one in made]),
        )

    def _tensor_in_thread(self, tensor: Tensor) -> _Made:
        _prove_this_thread()
        return self._tensor(tensor)

    def _tensor(self, tensor: Tensor) -> _Made:
        """Plan from what the headers say, add up, check what they said, step."""
        name, settings = tensor.name, self._order.settings
        history = self._before.history(name)
        said = [_said(self._deltas[one.position], name) for one in self._members]
        clipping = Clipping(settings.norm_clip, history)
        plan = plan_merge(tensor.rule, self._weights, said, clipping)
        streams = [
            _elements(self._deltas[one.position], name, one.position) for one in self._members
        ]
        total = add_up(streams, plan, tensor.elements)
        self._check_squares(name, said, total.found)
        factor, norm = finish(plan, total)
        assert math.isfinite(norm), f"{name}: the gates let only short deltas pass"
        parameter, momentum = self._step(tensor, total.gradient)
        report = TensorReport(
            name=name,
            rule=tensor.rule,
            norms=plan.norms,
            limit=plan.limit,
            clips=plan.clips,
            scales=plan.scales,
            factor=factor,
            outer_gradient_norm=norm,
            medians=next_history(history, plan),
        )
        return _Made(parameter, momentum, report)

    def _check_squares(self, name: str, said: list[float], found: tuple[float, ...]) -> None:
        reasons = {}
        for one, told, counted in zip(self._members, said, found, strict=True):
            reason = gates.check_squares(name, told, counted)
            if reason is not None:
                reasons[one.position] = reason
        if reasons:
            raise _Fault(reasons)

    def _step(self, tensor: Tensor, gradient: Floats) -> tuple[Floats, Floats]:
        """The outer step, chunk by chunk, on the fragment as it was."""
        settings, before = self._order.settings, self._before
        parameter, momentum = np.empty_like(gradient), np.empty_like(gradient)
        velocities = (
            None if before.momentum is None else before.momentum.chunks(tensor.name, CHUNK_ELEMENTS)
        )
        start = 0
        for chunk in before.parameters.chunks(tensor.name, CHUNK_ELEMENTS):
            part = slice(start, start + len(chunk))
            velocity = None if velocities is None else next(velocities)
            parameter[part], momentum[part] = outer_chunk(
                chunk, velocity, gradient[part], settings.lr, settings.mu
            )
            assert np.isfinite(parameter[part]).all(), f"{tensor.name}: not finite after the step"
            start += len(chunk)
        return parameter.reshape(tensor.shape), momentum.reshape(tensor.shape)


_proved = threading.local()


def _prove_this_thread() -> None:
    """Flush-to-zero belongs to a thread: each one passes the known-answer test once."""
    if not getattr(_proved, "passed", False):
        self_test()
        _proved.passed = True


def _check(order: MergeOrder) -> None:
    learners = [one.learner for one in order.contributions]
    assert learners == sorted(set(learners)), "contributions in learner-id order, one a learner"
    names = [tensor.name for tensor in order.tensors]
    assert names and names == sorted(set(names)), "tensors sorted by name, each once"
    assert order.quorum >= 1 and order.version >= 1
    assert (order.momentum is None) == (order.version == 1), "momentum begins with version 1"
    assert (order.report is None) == (order.report_round is None)


def _open_before(order: MergeOrder, store: BlobStore, patient: PatientStore) -> _Before:
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
    return _Before(parameters, momentum, report)


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
                reason = _why_unread(error)
            else:
                reason = gates.check_header(blob, order.tensors)
        if reason is None:
            opened[one.position] = blob
        else:
            reasons[one.position] = reason
    return opened, reasons


def _elements(blob: TensorBlob, name: str, position: int) -> Iterator[Floats]:
    """A tensor's chunks; what cannot be read is the fault of this position."""
    try:
        yield from blob.chunks(name, CHUNK_ELEMENTS)
    except (BlobMissing, BlobCorrupt, StoreUnreachable) as error:
        raise _Fault({position: _why_unread(error)}) from None


def _why_unread(error: BlobMissing | BlobCorrupt | StoreUnreachable) -> str:
    match error:
        case BlobMissing():
            return gates.MISSING
        case BlobCorrupt():
            return gates.reason(gates.CORRUPT, str(error))
        case StoreUnreachable():
            return gates.reason(gates.UNREACHABLE, str(error))


def _said(blob: TensorBlob, name: str) -> float:
    squares = blob.squares(name)
    assert squares is not None, "the header gate lets no other pass"
    return squares


def _left_out(reasons: Mapping[int, str]) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(position=position, reason=reasons[position]) for position in sorted(reasons)
    )


def _norm_of_all(norms: list[float]) -> float:
    """The norm of the fragment's outer gradient, from those of its tensors."""
    return math.sqrt(tree_sum(np.array([norm * norm for norm in norms])))
