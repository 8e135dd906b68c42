"""One life of a learner trained again with the production pieces, to the steps of its script.

Knows torch, the built-in decoder and a life's boundaries. It must not know the tape's order or
what is compared: what it makes is handed to whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from decodiloco.errors import BlobCorrupt
from decodiloco.fragments.of_model import same_layout, trained
from decodiloco.learner.adopt import zero_moments
from decodiloco.learner.anchors import Anchors
from decodiloco.learner.checkpoint import Raw, capture, restore
from decodiloco.learner.copies import Arrays, HostCopy
from decodiloco.learner.delta import made_delta
from decodiloco.learner.feedback import Coded, to_arrays
from decodiloco.opening import Opening
from decodiloco.store.tensors import Encoded, encode_raw
from decodiloco.training.corpus import Corpus
from decodiloco.training.gpt import build
from decodiloco.training.schedule import learning_rate
from decodiloco.training.shards import Batches
from decodiloco.training.trainer import adamw, batches_of, seed_draws, train_one_step
from replay.retrain.lives import Batching, Boundary, Life
from replay.retrain.script import Script
from streams.codec import unpack
from streams.errors import AskedWrongly, Unreadable
from streams.events import CheckpointStored, DeltaOffered
from streams.parts import CURSOR_BYTES_MAX

Cursor = dict[str, int]
Versions = Callable[[int, int], Arrays]
"""Gives the merged tensors of a fragment at a version, for one use."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all lives of a run have in common.

    `residuals` are those of deltas made again, by position, while something needs them.
    """

    opening: Opening
    corpus: Corpus
    script: Script
    versions: Versions
    names: tuple[tuple[str, ...], ...]
    residuals: dict[int, Coded] = field(default_factory=dict)

    def residual(self, position: int) -> Coded:
        """The residual of the offer at this position, for one of its uses; the last lets it go."""
        found, uses = self.residuals[position], self.script.residuals
        uses[position] -= 1
        if not uses[position]:
            del self.residuals[position]
        return found


@dataclass(frozen=True, slots=True)
class MadeDelta:
    """A delta, made for the offer at this position."""

    position: int
    offer: DeltaOffered
    encoded: Encoded
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class MadeCheckpoint:
    """A checkpoint, made for the one that was stored at this position.

    `is_told`: all that moved the model until then stands on the tape.
    """

    position: int
    stored: CheckpointStored
    encoded: Encoded
    arrays: Raw
    is_told: bool


Made = MadeDelta | MadeCheckpoint


def ground_of(opening: Opening, corpus: Corpus, script: Script, versions: Versions) -> Ground:
    """The common ground, if the run trains the built-in decoder.

    Raises AskedWrongly for a run with a model of its own.
    """
    ours = trained(build(opening.run.model))
    difference = same_layout(ours.layout(opening.run), opening.layout)
    if difference is not None:
        raise AskedWrongly(
            f"run {opening.run.name} trains a model of its own ({difference}); only runs of the "
            "built-in trainer can be trained again"
        )
    names = tuple(
        tuple(tensor.name for tensor in opening.layout.of(fragment))
        for fragment in range(opening.layout.fragments)
    )
    return Ground(opening, corpus, script, versions, names)


class Trainee:
    """A model, its optimizer and its place in the text, from the join to the last step wanted."""

    def __init__(self, life: Life, ground: Ground, moments: Raw | None) -> None:
        run, joined = ground.opening.run, life.joined
        self.life = life
        self.step = joined.learner_step
        self.adoptions = 0
        self._ground = ground
        self._gpt = build(run.model)
        self._gpt.train()
        self._optimizer = adamw(self._gpt, run.training)
        self._parameters = trained(self._gpt).tensors
        self._anchors = Anchors(run.adoption)
        self._batches = _batches(life, ground)
        self._batching = Batching(life.counts, run.model.context, run.training.batch_sequences)
        self._clock = ground.script.clock(0, 0)
        for fragment, version in enumerate(joined.versions):
            self._anchors.load(self._parameters, fragment, ground.versions(fragment, version))
            self._clock = self._clock.later(ground.script.clock(fragment, version))
        if moments is not None:
            self.take(moments)

    def take(self, moments: Raw) -> None:
        """Puts moments into the optimizer. Raises BlobCorrupt when they are of another one."""
        if not restore(self._optimizer, self._parameters, moments, own=False):
            raise BlobCorrupt("a checkpoint of another optimizer than the built-in trainer's")

    def resume(self, cursor: Cursor) -> None:
        """Goes on in the text where another life of this learner was."""
        self._batches.resume(cursor)

    def reach(self, step: int) -> Iterator[Made]:
        """Trains up to a step, and gives what was made at each boundary, this one's among them.

        Adoptions at the last boundary wait until it is left: their versions may not be there.
        """
        while self.step < step:
            self._leave(self.life.boundaries.get(self.step))
            self._train()
            boundary = self.life.boundaries.get(self.step)
            if boundary is not None:
                yield from self._arrive(boundary)

    def _arrive(self, boundary: Boundary) -> Iterator[Made]:
        script = self._ground.script
        for position, offer in boundary.offers.items():
            if script.synthetic and position not in script.merged_at:
                continue
            names = self._ground.names[offer.fragment]
            copy = self._anchors.copy(self._parameters, offer.fragment, names, self.step)
            encoded = self._encoded(copy, position, offer)
            yield MadeDelta(position, offer, encoded, self._batches.cursor)
        if boundary.heals:
            self._leave(boundary)
            boundary.adoptions = []
        if boundary.checkpoint is not None:
            position, stored = boundary.checkpoint
            if script.synthetic and position not in script.moments:
                return
            seed_draws(self._ground.opening.run, self.life.learner)
            arrays = capture(self._optimizer, self._parameters)
            if not script.synthetic:
                arrays |= to_arrays({at: self._ground.residual(at) for at in stored.residuals})
            is_told = self.life.is_told(position, self.step)
            yield MadeCheckpoint(position, stored, encode_raw(arrays), arrays, is_told)

    def _encoded(self, copy: HostCopy, position: int, offer: DeltaOffered) -> Encoded:
        """The delta with the residuals that its offer tells; its own is kept if it is needed."""
        ground, codecs = self._ground, self._ground.opening.run.codecs
        held = tuple(map(ground.residual, offer.residuals)) if codecs.feeds_back else None
        encoded, residual = made_delta(copy, codecs.delta, held)
        if residual is not None and ground.script.residuals[position]:
            ground.residuals[position] = residual
        return encoded

    def _leave(self, boundary: Boundary | None) -> None:
        """The adoptions of a boundary, after which the next step begins."""
        if boundary is None or not boundary.adoptions:
            return
        ground = self._ground
        for writing in boundary.adoptions:
            fragment, version = writing.fragment, writing.version
            arrays = ground.versions(fragment, version)
            if boundary.heals:
                self._anchors.load(self._parameters, fragment, arrays)
            else:
                self._anchors.adopt(self._parameters, fragment, arrays, writing.merged_step)
            self._clock = self._clock.later(ground.script.clock(fragment, version))
        self.adoptions += len(boundary.adoptions)
        if boundary.heals:
            zero_moments(self._optimizer)

    def _train(self) -> None:
        run = self._ground.opening.run
        rate = learning_rate(run, self._clock.step, self._clock.tokens)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        windows = self._batches.take()[: self._sequences(self.step + 1)]
        train_one_step(self._gpt, self._optimizer, torch.from_numpy(windows), run.training.clip)
        self.step += 1

    def _sequences(self, step: int) -> int:
        try:
            return self._batching.sequences(step)
        except ValueError as error:
            raise _not_ours(self.life, str(error)) from None


def _batches(life: Life, ground: Ground) -> Batches:
    run, joined = ground.opening.run, life.joined
    batches = batches_of(run.training, run.model.context, ground.corpus, joined.slot)
    if joined.cursor:
        try:
            batches.resume(unpack(joined.cursor, CURSOR_BYTES_MAX))
        except (AskedWrongly, Unreadable) as error:
            raise _not_ours(life, str(error)) from None
    return batches


def _not_ours(life: Life, why: str) -> AskedWrongly:
    return AskedWrongly(
        f"learner {life.learner}, which joined at position {life.incarnation}, did not train as "
        f"the built-in trainer does on this text: {why}"
    )
