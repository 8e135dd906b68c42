"""Holds what was made again against the tape, and says with which bytes to go on.

What is identical goes on by itself. What differs is counted, measured against the bytes in the
tape's store, and replaced by them: one difference must not make all that follows differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.learner.checkpoint import MOMENT, Raw
from decodiloco.learner.feedback import RESIDUAL
from decodiloco.merge.fragment import Merged, MergeOrder
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import key_of_checkpoint, key_of_offer, named_by
from decodiloco.store.small import read_small
from decodiloco.store.tensors import read_raw, read_tensors
from replay.retrain.compare import Difference, distance
from replay.retrain.merges import Three
from replay.retrain.outcome import Rerun, Row
from replay.retrain.shelf import tensors_of
from replay.retrain.trainee import MadeCheckpoint, MadeDelta
from streams.codec import pack
from streams.events import FragmentMerged, RunClosed
from streams.manifest import Manifest


class Judge:
    """Compares, and counts into what was found. On a synthetic tape there is nothing to compare."""

    def __init__(self, opening: Opening, store: BlobStore, found: Rerun) -> None:
        self._run = opening.run.name
        self._store = store
        self._found = found
        self._told: dict[int, tuple[Manifest | None, ...]] = {
            fragment: (manifest, None, None) for fragment, manifest in enumerate(opening.fragments)
        }

    def delta(self, row: Row, made: MadeDelta) -> Manifest:
        """The delta to go on with: ours, or the tape's where ours differs and its can be read."""
        offer, ours = made.offer, made.encoded.manifest
        if self._found.synthetic:
            return ours
        row.deltas.compared += 1
        if pack(made.cursor) != offer.cursor:
            what = f"made again, it stands at {made.cursor} in its text; the tape says otherwise"
            told = offer.learner, offer.learner_step, offer.fragment
            self._found.note(Difference(made.position, what, *told), not row.differs)
        if ours == offer.manifest:
            row.deltas.identical += 1
            return ours
        difference = Difference(
            made.position,
            f"made again, the delta has digest {_short(ours)}; the tape says "
            f"{_short(offer.manifest)}",
            offer.learner,
            offer.learner_step,
            offer.fragment,
        )
        self._found.note(difference, not row.differs)
        try:
            theirs = read_tensors(self._store, key_of_offer(self._run, offer), offer.manifest)
        except (BlobMissing, BlobCorrupt):
            row.deltas.unread += 1
            return ours
        row.distances.append(distance(tensors_of(made.encoded), theirs))
        self._found.stored_taken += 1
        return offer.manifest

    def checkpoint(self, row: Row, made: MadeCheckpoint) -> Raw | None:
        """The tape's moments to go on with, where ours differ and these can be read; else None."""
        if self._found.synthetic:
            return None
        stored, ours = made.stored, made.encoded.manifest
        row.checkpoints.compared += 1
        if ours == stored.manifest:
            row.checkpoints.identical += 1
            return None
        theirs: Raw | None = None
        try:
            key = key_of_checkpoint(self._run, stored)
            theirs = read_raw(self._store, key, stored.manifest)
        except (BlobMissing, BlobCorrupt):
            row.checkpoints.unread += 1
        if theirs is not None and _same_moments(made.arrays, theirs):
            row.checkpoints.identical += 1
            row.random_only += 1
            return None
        difference = Difference(
            made.position,
            f"made again, the checkpoint has digest {_short(ours)}; the tape says "
            f"{_short(stored.manifest)}",
            stored.learner,
            stored.learner_step,
        )
        row.untold += not made.is_told
        self._found.note(difference, made.is_told and not row.differs)
        self._found.stored_taken += theirs is not None
        return theirs

    def merge(self, position: int, event: FragmentMerged, order: MergeOrder, made: Merged) -> Three:
        """The version to go on with. From the tape's own deltas it must be the same anywhere."""
        found = self._found
        ours = made.parameters.manifest, made.momentum.manifest, made.report.manifest
        if found.synthetic:
            return ours
        found.merges.compared += 1
        told = event.parameters, event.momentum, event.report
        before, self._told[event.fragment] = self._told[event.fragment], told
        if ours == told:
            found.merges.identical += 1
            return ours
        is_theirs = before == (order.parameters, order.momentum, order.report)
        difference = Difference(
            position,
            f"merged again, version {event.version} has parameters {_short(ours[0])}, momentum "
            f"{_short(ours[1])} and report {_short(ours[2])}; the tape says {_short(told[0])}, "
            f"{_short(told[1])} and {_short(told[2])}",
            fragment=event.fragment,
        )
        found.note(difference, is_theirs)
        if not self._can_read(event):
            found.merges.unread += 1
            return ours
        found.stored_taken += 1
        return told

    def model(self, position: int, closed: RunClosed, digest: bytes) -> None:
        """The closed model's digest against the run's."""
        if self._found.synthetic:
            return
        models = self._found.models
        models.compared += 1
        models.identical += digest == closed.digest
        if digest != closed.digest:
            what = (
                f"the closed model has digest {digest.hex()[:16]}; the tape says "
                f"{closed.digest.hex()[:16]}"
            )
            self._found.note(Difference(position, what), True)

    def _can_read(self, event: FragmentMerged) -> bool:
        parameters, momentum, report = named_by(self._run, event)
        try:
            for key, manifest in (parameters, momentum):
                read_tensors(self._store, key, manifest)
            read_small(self._store, *report)
        except (BlobMissing, BlobCorrupt):
            return False
        return True


def _same_moments(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two checkpoints hold the same moments and residuals, whatever their random states."""
    kinds = (MOMENT, RESIDUAL)
    names = sorted(name for name in ours if name.startswith(kinds))
    return names == sorted(name for name in theirs if name.startswith(kinds)) and all(
        np.array_equal(ours[name], theirs[name]) for name in names
    )


def _short(manifest: Manifest) -> str:
    return manifest.digest.hex()[:16]
