"""One pass over a fragment with a fixed set of deltas: added up, held against each other, stepped.

Reads opened blobs in chunks; several threads take pieces of a tensor, and give the same bits as
one. Decides nothing about a further pass: it says who was unfit, too long or pointed elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.fragments.layout import Tensor
from decodiloco.merge import definition, direction, gates, loading
from decodiloco.merge.ahead import Readers, chunks_ahead
from decodiloco.merge.crew import Crew
from decodiloco.merge.direction import Agreement, Heard
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats, shares, tree_sum
from decodiloco.merge.geometric import gram_of
from decodiloco.merge.order import Merged, MergeOrder
from decodiloco.merge.places import Place, put
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
    Plan,
    Sums,
    length_of,
    median,
    plan_merge,
)
from decodiloco.merge.self_test import self_test
from decodiloco.store.codecs import LOSSLESS
from decodiloco.store.growing import Growing
from decodiloco.store.tensors import Encoded, TensorBlob
from streams.parts import LeftOut

if TYPE_CHECKING:
    from decodiloco.merge.compiled import Coded

T = TypeVar("T")


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
    """What was told and heard of one tensor while it was made."""

    report: TensorReport
    heard: Heard | None


@dataclass(frozen=True, slots=True)
class Sources:
    """What one pass reads: deltas in the order of the contributions, and the fragment before.

    `recalled` is the momentum once more, where it has a voice.
    """

    deltas: Sequence[TensorBlob]
    recalled: TensorBlob | None
    parameters: TensorBlob
    momentum: TensorBlob | None


class Pass:
    """One attempt at the whole fragment with a fixed set of deltas (position -> blob)."""

    def __init__(
        self,
        order: MergeOrder,
        before: Before,
        deltas: Mapping[int, TensorBlob],
        readers: Readers,
    ) -> None:
        self._order = order
        self._before = before
        self._deltas = deltas
        self._readers = readers
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
        assert order.settings.fragment_codec == LOSSLESS, "a new version is stored as it is"
        shapes = {tensor.name: tensor.shape for tensor in order.tensors}
        self._parameters = Growing(shapes, readers.beside)
        self._momentum = Growing(shapes, readers.beside)

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
        """All tensors, in order, by so many threads. The fault is that of the first faulty one."""
        sources = self._sources()
        if threads == 1:
            return [self._tensor(tensor, sources, Crew()) for tensor in self._order.tensors]
        pool = ThreadPoolExecutor(threads, "merge", initializer=prove_this_thread)
        try:
            crew = Crew(pool, threads)
            return [self._tensor(tensor, sources, crew) for tensor in self._order.tensors]
        finally:
            pool.shutdown(cancel_futures=True)

    def _sources(self) -> Sources:
        """The blobs as one pass reads them: each from front to back, and ahead."""
        momentum = self._before.momentum
        ahead = partial(self._readers.ahead, chunks=chunks_ahead(len(self._members) + 2))
        deltas = [ahead(self._deltas[one.position]) for one in self._members]
        recalled = ahead(momentum) if self._hears and self._with_history and momentum else None
        moved = None if momentum is None else ahead(momentum)
        return Sources(deltas, recalled, ahead(self._before.parameters), moved)

    def merged(self, made: list[Made], left_out: tuple[LeftOut, ...]) -> Merged:
        """The blobs of the new version."""
        order = self._order
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
        return Merged(
            tuple(one.position for one in self._members),
            left_out,
            self._parameters.encoded(),
            self._momentum.encoded(),
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

    def _tensor(self, tensor: Tensor, sources: Sources, crew: Crew) -> Made:
        """Plan from what the headers say, add up, check what they said, step."""
        name, settings = tensor.name, self._order.settings
        history = self._before.history(name)
        said = [_said(self._deltas[one.position], name) for one in self._members]
        clipping = Clipping(settings.norm_clip, history)
        gram = None
        if tensor.rule == "median" and len(self._members) > 1:
            gram = gram_of(self._streams(name, self._opened()), tensor.elements)
        plan = plan_merge(tensor.rule, self._weights, said, clipping, gram)
        parameter, momentum = self._parameters.tensor(name), self._momentum.tensor(name)
        sums, heard = self._added(tensor, plan, sources, momentum, crew)
        self._check_squares(name, said, sums.found)
        factor, norm = length_of(plan, sums)
        assert math.isfinite(norm), f"{name}: the gates let only short deltas pass"
        pieces = sources.parameters.chunks(name, CHUNK_ELEMENTS)
        moved = _pieces(sources.momentum, name)
        places, rates = (parameter, momentum), (settings.lr, settings.mu)
        _step(pieces, moved, places, factor, rates, crew)
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
        return Made(report, heard)

    def _added(
        self, tensor: Tensor, plan: Plan, sources: Sources, out: Place, crew: Crew
    ) -> tuple[Sums, Heard | None]:
        """The sum of a tensor's deltas, kept in `out`; how they agree where that is asked."""
        name = tensor.name
        voices = self._voices if self._hears else ()
        history = _pieces(sources.recalled, name)
        if plan.trims or not _has_loops():  # the forms whose sum is in memory as a whole
            streams = self._streams(name, sources.deltas)
            total, heard = definition.add_up(streams, plan, tensor.elements, voices, history)
            put(total.gradient, out)
            return total.sums, heard
        from decodiloco.merge import adding  # with the loops

        coded = self._coded(name, sources.deltas)
        return adding.add_up(coded, plan, out, crew, voices, history)

    def _opened(self) -> list[TensorBlob]:
        return [self._deltas[one.position] for one in self._members]

    def _streams(self, name: str, deltas: Sequence[TensorBlob]) -> list[Iterator[Floats]]:
        """A tensor's elements, a stream a delta."""
        return [
            _at(one.position, blob.chunks(name, CHUNK_ELEMENTS))
            for one, blob in zip(self._members, deltas, strict=True)
        ]

    def _coded(self, name: str, deltas: Sequence[TensorBlob]) -> list[Iterator[Coded]]:
        """The same as the compiled loops take it: what is bf16 is decoded on the way."""
        if self._order.settings.delta_codec != "bf16":
            return list(self._streams(name, deltas))
        return [
            _at(one.position, blob.words(name, CHUNK_ELEMENTS))
            for one, blob in zip(self._members, deltas, strict=True)
        ]

    def _check_squares(self, name: str, said: list[float], found: tuple[float, ...]) -> None:
        reasons = {}
        for one, told, counted in zip(self._members, said, found, strict=True):
            reason = gates.check_squares(name, told, counted)
            if reason is not None:
                reasons[one.position] = reason
        if reasons:
            raise Fault(reasons)


_proved = threading.local()


def prove_this_thread() -> None:
    """Flush-to-zero belongs to a thread: each one passes the known-answer test once.

    And once more when the compiled loops have come since then.
    """
    with_loops = loading.are_ready()
    if getattr(_proved, "with_loops", None) is not with_loops:
        self_test()
        _proved.with_loops = with_loops


def _has_loops() -> bool:
    """Whether the loops are there, and proved by this thread: they may come during a merge."""
    prove_this_thread()
    return bool(_proved.with_loops)


def _step(
    parameters: Iterator[Floats],
    momentum: Iterator[Floats] | None,
    places: tuple[Place, Place],
    factor: float,
    rates: tuple[float, float],
    crew: Crew,
) -> None:
    """The outer step by the compiled loops, or by the definition where these are not there yet."""
    if _has_loops():
        from decodiloco.merge import adding  # with the loops

        adding.step(parameters, momentum, places, factor, rates, crew)
    else:
        definition.step_in(parameters, momentum, places, factor, rates)


def _pieces(blob: TensorBlob | None, name: str) -> Iterator[Floats] | None:
    return None if blob is None else blob.chunks(name, CHUNK_ELEMENTS)


def _at(position: int, pieces: Iterator[T]) -> Iterator[T]:
    """A tensor's pieces; what cannot be read is the fault of this position."""
    try:
        yield from pieces
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
