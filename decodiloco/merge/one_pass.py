"""One pass over a fragment with a fixed set of deltas: added up, held against each other, stepped.

Reads opened blobs in chunks; several threads take a tensor each, and give the same bits as one.
Decides nothing about a further pass: it says who was unfit, too long or pointed elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.fragments.layout import Tensor
from decodiloco.merge import direction, gates
from decodiloco.merge.direction import Agreement, Heard, Listener
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats, shares, tree_sum
from decodiloco.merge.geometric import gram_of
from decodiloco.merge.order import Merged, MergeOrder
from decodiloco.merge.outer import outer_chunk
from decodiloco.merge.report import (
    Contributor,
    Report,
    TensorReport,
    encode_report,
    lengthened,
    next_history,
)
from decodiloco.merge.rules import (
    HISTORY_VERSIONS,
    VOICES_MIN,
    Clipping,
    add_up,
    finish,
    median,
    plan_merge,
)
from decodiloco.merge.self_test import self_test
from decodiloco.store.tensors import Encoded, TensorBlob, encode_tensors
from streams.parts import LeftOut

Hear = Callable[[Sequence[Floats]], None]


class Fault(Exception):
    """Deltas that turned out, during a pass, to be unfit: position -> reason."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = dict(reasons)


@dataclass(frozen=True, slots=True)
class Before:
    """The fragment as it was, opened."""

    parameters: TensorBlob
    momentum: TensorBlob | None
    report: Report | None

    def history(self, name: str) -> tuple[float, ...]:
        return () if self.report is None else self.report.history(name)

    @property
    def step_norms(self) -> tuple[float, ...]:
        return () if self.report is None else self.report.step_norms


@dataclass(frozen=True, slots=True)
class Made:
    """One tensor's new version."""

    parameter: Floats
    momentum: Floats
    report: TensorReport
    heard: Heard | None


class Pass:
    """One attempt at the whole fragment with a fixed set of deltas (position -> blob)."""

    def __init__(self, order: MergeOrder, before: Before, deltas: Mapping[int, TensorBlob]) -> None:
        self._order = order
        self._before = before
        self._deltas = deltas
        self._members = [one for one in order.contributions if one.position in deltas]
        self._weights = [one.weight for one in self._members]
        self._squares = [_squares_of(deltas[one.position]) for one in self._members]
        self._step_norms = [
            math.sqrt(squares) / one.inner_steps
            for squares, one in zip(self._squares, self._members, strict=True)
        ]
        self._voices = direction.units([math.sqrt(squares) for squares in self._squares])
        few = len(self._members) < VOICES_MIN
        self._with_history = few and len(self._members) > 1 and before.momentum is not None
        hears = order.settings.direction is not None and (self._with_history or not few)
        self._hears = hears

    def too_long(self) -> dict[int, str]:
        """Deltas whose norm a step is extreme, by position, by what their headers say."""
        extreme = self._order.settings.norm_extreme
        if extreme is None or self._order.settled:
            return {}
        voices, history = self._step_norms, self._before.step_norms
        if len(voices) < VOICES_MIN:
            voices = list(history) if len(history) == HISTORY_VERSIONS else []
        middle = median(voices)
        return {
            one.position: reason
            for one, norm in zip(self._members, self._step_norms, strict=True)
            if (reason := gates.check_norm(norm, middle, extreme)) is not None
        }

    def misdirected(self, made: Sequence[Made], left_out: int) -> dict[int, str]:
        """The one delta, by position, that points elsewhere than the others, if any does."""
        share, deltas = self._order.settings.direction, len(self._members)
        if share is None or self._order.settled:
            return {}
        if not direction.may_leave_out(deltas, left_out, self._with_history):
            return {}
        found = self._agreements(made)
        limits = [direction.DOUBT if one.distrusted else -share for one in self._members]
        place = direction.odd_one_out(found, limits, self._order.elements)
        if place is None:
            return {}
        one = found[place]
        assert one is not None
        return {self._members[place].position: gates.misdirected(one)}

    def run(self, threads: int) -> list[Made]:
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

    def merged(self, made: list[Made], left_out: tuple[LeftOut, ...]) -> Merged:
        """The blobs of the new version."""
        order = self._order
        names = [tensor.name for tensor in order.tensors]
        found = self._agreements(made)
        doubted = direction.doubted(found, len(self._members), order.elements)
        payload, manifest = encode_report(
            Report(
                order.round,
                order.fragment,
                order.version,
                self._contributors(found),
                tuple(one.report for one in made),
                lengthened(self._before.step_norms, median(self._step_norms)),
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
            tuple(self._members[place].position for place in doubted),
        )

    def _contributors(self, found: Sequence[Agreement | None]) -> tuple[Contributor, ...]:
        told = zip(self._members, shares(self._weights), self._step_norms, found, strict=False)
        return tuple(
            Contributor(
                one.position,
                one.learner,
                share,
                norm,
                None if agreement is None else agreement.own,
                None if agreement is None else agreement.rest,
            )
            for one, share, norm, agreement in told
        )

    def _agreements(self, made: Sequence[Made]) -> tuple[Agreement | None, ...]:
        heard = [one.heard for one in made if one.heard is not None]
        if not heard:
            return (None,) * len(self._members)
        return direction.agreements(direction.together(heard), self._voices, self._squares)

    def _tensor_in_thread(self, tensor: Tensor) -> Made:
        prove_this_thread()
        return self._tensor(tensor)

    def _tensor(self, tensor: Tensor) -> Made:
        """Plan from what the headers say, add up, check what they said, step."""
        name, settings = tensor.name, self._order.settings
        history = self._before.history(name)
        said = [_said(self._deltas[one.position], name) for one in self._members]
        clipping = Clipping(settings.norm_clip, history)
        gram = None
        if tensor.rule == "median" and len(self._members) > 1:
            gram = gram_of(self._streams(name), tensor.elements)
        plan = plan_merge(tensor.rule, self._weights, said, clipping, gram)
        listener, hear = self._listener(tensor)
        total = add_up(self._streams(name), plan, tensor.elements, hear=hear)
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
        heard = None if listener is None else listener.heard()
        return Made(parameter, momentum, report, heard)

    def _streams(self, name: str) -> list[Iterator[Floats]]:
        return [_elements(self._deltas[one.position], name, one.position) for one in self._members]

    def _listener(self, tensor: Tensor) -> tuple[Listener | None, Hear | None]:
        """Who hears how the deltas of a tensor agree, and how it is told their chunks."""
        if not self._hears:
            return None, None
        listener = Listener(self._voices, tensor.elements, self._with_history)
        velocities = self._velocities(tensor.name) if self._with_history else None

        def hear(parts: Sequence[Floats]) -> None:
            listener.chunk(parts, None if velocities is None else next(velocities))

        return listener, hear

    def _velocities(self, name: str) -> Iterator[Floats] | None:
        momentum = self._before.momentum
        return None if momentum is None else momentum.chunks(name, CHUNK_ELEMENTS)

    def _check_squares(self, name: str, said: list[float], found: tuple[float, ...]) -> None:
        reasons = {}
        for one, told, counted in zip(self._members, said, found, strict=True):
            reason = gates.check_squares(name, told, counted)
            if reason is not None:
                reasons[one.position] = reason
        if reasons:
            raise Fault(reasons)

    def _step(self, tensor: Tensor, gradient: Floats) -> tuple[Floats, Floats]:
        """The outer step, chunk by chunk, on the fragment as it was."""
        settings, before = self._order.settings, self._before
        parameter, momentum = np.empty_like(gradient), np.empty_like(gradient)
        velocities = self._velocities(tensor.name)
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


def prove_this_thread() -> None:
    """Flush-to-zero belongs to a thread: each one passes the known-answer test once."""
    if not getattr(_proved, "passed", False):
        self_test()
        _proved.passed = True


def _elements(blob: TensorBlob, name: str, position: int) -> Iterator[Floats]:
    """A tensor's chunks; what cannot be read is the fault of this position."""
    try:
        yield from blob.chunks(name, CHUNK_ELEMENTS)
    except (BlobMissing, BlobCorrupt, StoreUnreachable) as error:
        raise Fault({position: why_unread(error)}) from None


def why_unread(error: BlobMissing | BlobCorrupt | StoreUnreachable) -> str:
    match error:
        case BlobMissing():
            return gates.MISSING
        case BlobCorrupt():
            return gates.reason(gates.CORRUPT, str(error))
        case StoreUnreachable():
            return gates.reason(gates.UNREACHABLE, str(error))


def _squares_of(blob: TensorBlob) -> float:
    """A delta's sum of squares over all of its tensors, as its header has it."""
    return tree_sum(np.array([_said(blob, name) for name in blob.names]))


def _said(blob: TensorBlob, name: str) -> float:
    squares = blob.squares(name)
    assert squares is not None, "the header gate lets no other pass"
    return squares


def _norm_of_all(norms: list[float]) -> float:
    """The norm of the fragment's outer gradient, from those of its tensors."""
    return math.sqrt(tree_sum(np.array([norm * norm for norm in norms])))
