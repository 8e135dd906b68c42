"""What must hold of the bytes that facts name: they are there, finite, and what they should be.

Merges are made again in plain float64 formulas, from the stored deltas and nothing of the
production arithmetic, and compared within rounding. (`replay verify` compares them to the bit.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import median

import numpy as np
import numpy.typing as npt

from decodiloco.fragments.layout import Tensor
from decodiloco.merge.report import Report, decode_report
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, key_of_offer, named_by, outer_key, report_key
from decodiloco.store.small import read_small
from decodiloco.store.tensors import read_tensors
from replay.invariants.cohort import ROBUST, stranger
from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from replay.reach import EVERYTHING, Reach
from streams.envelope import Envelope
from streams.errors import Corrupt
from streams.events import FragmentMerged
from streams.manifest import Manifest

Wide = npt.NDArray[np.float64]

HISTORY_VERSIONS = 8
CANCELLED = 2.0**-20
SHORTEST = 2.0**-100
TOLERANCE = 1e-4  # of a tensor's largest number: float32 rounding, some hundred times over


class BytesBeforeWords(Invariant):
    """Whatever a fact names is durable in the store when the fact is written."""

    name = "bytes before words"

    def __init__(
        self, store: BlobStore, is_excused: Callable[[str], bool], reach: Reach = EVERYTHING
    ) -> None:
        super().__init__()
        self._store, self._is_excused, self._reach = store, is_excused, reach

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        if not self._reach.has(envelope.position):
            return
        opening = ledger.opening
        for key, manifest in named_by(opening.run.name, envelope.event, opening.fragments):
            if self._is_excused(key):
                continue
            size = self._store.size(key)
            told = f"{key} has {size} bytes in the store; {manifest.bytes} are named"
            self.hold(size == manifest.bytes, told, envelope.position)


class MergedFromTheseBytes(Invariant):
    """Weights, merge and outer step come from the tape's counts and the stored deltas, and none
    of these is far too long or points elsewhere than the others.
    """

    name = "merged from these bytes"

    def __init__(self, store: BlobStore, reach: Reach = EVERYTHING) -> None:
        super().__init__()
        self._store, self._reach = store, reach
        self._medians: dict[str, list[float]] = {}
        self._passed_over: dict[int, FragmentMerged] = {}  # by fragment: the last one

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if not isinstance(event, FragmentMerged):
            return
        if not self._reach.is_whole(position):
            self._passed_over[event.fragment] = event
            return
        offers = [ledger.offers[each] for each in event.contributions]
        run = ledger.opening.run.name
        try:
            self._take_up(run, self._passed_over.pop(event.fragment, None))
            report = self._report(run, event)
            deltas = [self._read(key_of_offer(run, offer), offer.manifest) for offer in offers]
            before = self._fragment(ledger, event)
            key = global_key(run, event.fragment, event.version, event.parameters)
            parameters = self._read(key, event.parameters)
            key = outer_key(run, event.fragment, event.version, event.momentum)
            momentum = self._read(key, event.momentum)
        except Corrupt as error:
            self.hold(False, f"bytes of a merge cannot be read: {error}", position)
            return
        weights = [Fraction(offer.tokens**2, offer.inner_steps) for offer in offers]
        shares = [float(weight / sum(weights)) for weight in weights]
        told = [each.weight for each in report.contributors]
        exact = [float(np.float32(share)) for share in shares]
        self.hold(told == exact, f"weights {told}; the counts give {exact}", position)
        steps, gates = [offer.inner_steps for offer in offers], ledger.opening.run.gates
        strange = stranger(deltas, steps, gates, event.left_out)
        self.hold(not strange, strange, position)
        for tensor in ledger.opening.layout.of(event.fragment):
            name = tensor.name
            made = [parameters[name], momentum[name]]
            finite = all(bool(np.isfinite(array).all()) for array in made)
            self.hold(finite, f"{name} is not finite", position)
            gradient = self._gradient(ledger, tensor, shares, [delta[name] for delta in deltas])
            outer = ledger.opening.run.outer
            velocity = outer.momentum * before[1][name].astype(np.float64) + gradient
            step = gradient + outer.momentum * velocity
            expected = [before[0][name].astype(np.float64) - outer.lr * step, velocity]
            for array, other, what in zip(made, expected, ("value", "momentum"), strict=True):
                self.hold(_close(array, other), f"{name}: {what} is not that merge's", position)

    def _report(self, run: str, event: FragmentMerged) -> Report:
        key = report_key(run, event.round, event.report)
        return decode_report(read_small(self._store, key, event.report))

    def _take_up(self, run: str, event: FragmentMerged | None) -> None:
        """Above the horizon the medians go on as the last report below it tells them."""
        if event is not None:
            for tensor in self._report(run, event).tensors:
                self._medians[tensor.name] = list(tensor.medians)

    def _read(self, key: str, manifest: Manifest) -> dict[str, npt.NDArray[np.float32]]:
        return read_tensors(self._store, key, manifest)

    def _fragment(
        self, ledger: Ledger, event: FragmentMerged
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, npt.NDArray[np.float32]]]:
        """The fragment as it was: parameters, and momentum that is zero at first."""
        run, index, version = ledger.opening.run.name, event.fragment, event.version - 1
        manifest = ledger.parameters[index]
        parameters = self._read(global_key(run, index, version, manifest), manifest)
        held = ledger.momentum[index]
        if held is None:
            return parameters, {name: np.zeros_like(one) for name, one in parameters.items()}
        return parameters, self._read(outer_key(run, index, version, held), held)

    def _gradient(
        self,
        ledger: Ledger,
        tensor: Tensor,
        shares: list[float],
        deltas: list[npt.NDArray[np.float32]],
    ) -> Wide:
        """sum w c Delta, or that direction at the mean of the clipped norms (paper D.2)."""
        wide = [delta.astype(np.float64) for delta in deltas]
        lengths = [math.sqrt(float(np.square(delta).sum())) for delta in wide]
        norms = [length if length >= SHORTEST else 0.0 for length in lengths]
        clips = self._clips(ledger, tensor.name, norms)
        if tensor.rule in ROBUST and len(wide) > 1:
            clipped = [clip * delta for clip, delta in zip(clips, wide, strict=True)]
            return ROBUST[tensor.rule](clipped, shares)
        if tensor.rule == "mean" or len(wide) == 1:
            terms = [w * c * delta for w, c, delta in zip(shares, clips, wide, strict=True)]
            total: Wide = np.sum(terms, axis=0)
            return total
        units = [
            w * delta / norm if norm else 0.0 * delta
            for w, norm, delta in zip(shares, norms, wide, strict=True)
        ]
        direction: Wide = np.sum(units, axis=0)
        length = math.sqrt(float(np.square(direction).sum()))
        if length <= CANCELLED:
            return np.zeros_like(direction)
        radial = sum(w * c * norm for w, c, norm in zip(shares, clips, norms, strict=True))
        return direction * (radial / length)

    def _clips(self, ledger: Ledger, name: str, norms: list[float]) -> list[float]:
        """No norm above so many medians of this round and of the tensor's last versions."""
        history = self._medians.setdefault(name, [])
        full = history if len(history) == HISTORY_VERSIONS else []
        middle = _median(full)
        if len(norms) >= 3:
            middle = max(_median(norms), _median([*norms, *full]))
        bound = ledger.opening.run.merge.norm_clip
        limit = math.inf if bound == "none" or middle == 0.0 else bound * middle
        clips = [1.0 if norm <= limit else limit / norm for norm in norms]
        history.append(_median([c * norm for c, norm in zip(clips, norms, strict=True)]))
        del history[:-HISTORY_VERSIONS]
        return clips


def _median(values: list[float]) -> float:
    counted = [value for value in values if value > 0.0]
    return median(counted) if counted else 0.0


def _close(found: npt.NDArray[np.float32], expected: Wide) -> bool:
    scale = max(float(np.abs(expected).max()), 1e-6)
    return bool(np.abs(found - expected).max() <= TOLERANCE * scale)
