"""A tape's training done again: its learners trained, its merges made, all held against it.

Goes along the tape in order of position; a learner is trained as far as the next fact of its own
needs. It must not know how a tape is read or what a shell prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from decodiloco.learner.checkpoint import Raw
from decodiloco.learner.joining import fingerprint
from decodiloco.merge.model_digest import model_digest
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import key_of_checkpoint
from decodiloco.store.tensors import read_raw
from decodiloco.training.corpus import Corpus
from decodiloco.training.evaluation import held_out_loss, parameters_into
from decodiloco.training.gpt import build
from replay.errors import Differs
from replay.progress import Tell, silently
from replay.reach import reach_of
from replay.retrain.compare import differences, threads_of
from replay.retrain.judge import Judge
from replay.retrain.lives import Life
from replay.retrain.merges import Merges
from replay.retrain.outcome import Loss, Rerun, Row
from replay.retrain.script import Script, read_script
from replay.retrain.shelf import Shelf
from replay.retrain.trainee import Cursor, MadeDelta, Trainee, ground_of
from streams.envelope import Envelope
from streams.errors import AskedWrongly
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    EvaluationReported,
    FragmentMerged,
    LearnerJoined,
    RoundOpened,
    RunClosed,
)
from streams.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a tape is to be done again.

    `learners` are those that are trained (none named: all), `until` is the last position taken,
    and after each `evaluate_merges` merges the merged model is evaluated (None: only before the
    first and after the last).
    """

    learners: Sequence[str] = ()
    until: int | None = None
    evaluate_merges: int | None = None


ALL = Wanted()


def rerun(
    records: Sequence[Envelope],
    opening: Opening,
    store: BlobStore,
    corpus: Corpus,
    wanted: Wanted = ALL,
    tell: Tell = silently,
) -> Rerun:
    """Trains the learners of a tape again, and says how what they made compares with it.

    `records` are all of the tape. `store` holds the run's first fragments; its other blobs are
    read only where something differs. A synthetic tape names bytes that were never made: nothing
    is compared there, and the merges and their losses are what is wanted.
    Raises AskedWrongly for a run that the built-in trainer did not train on this text, Differs
    where the tape cannot have come about, BlobMissing or BlobCorrupt when the first fragments, or
    the deltas of learners that are not trained again, cannot be read.
    """
    text_told = check_text(records, corpus)
    script = read_script(records, opening, wanted.learners)
    shelf = Shelf(store)
    course = _Course(script, opening, shelf, corpus)
    course.found.text_told = text_told
    course.found.reach = reach_of(records)
    threads = torch.get_num_threads()
    try:
        course.go(records, wanted, tell)
    finally:
        torch.set_num_threads(threads)
        shelf.close()
    return course.found


def check_text(records: Sequence[Envelope], corpus: Corpus) -> bool:
    """Whether the run was evaluated on this text; False where it was not evaluated at all.

    Raises AskedWrongly when it was evaluated on another.
    """
    told = [
        record.event.dataset_digest
        for record in records
        if isinstance(record.event, EvaluationReported)
    ]
    if told and corpus.digest not in told:
        raise AskedWrongly(
            f"this is not the text of the run: its held-out part has digest "
            f"{corpus.digest.hex()[:16]}, and the run was evaluated on {told[0].hex()[:16]}; name "
            "the run's own text with --data"
        )
    return bool(told)


class _Course:
    """One way along a tape."""

    def __init__(self, script: Script, opening: Opening, shelf: Shelf, corpus: Corpus) -> None:
        self.found = Rerun(opening.run.name, script.synthetic)
        self._script = script
        self._opening = opening
        self._shelf = shelf
        self._corpus = corpus
        self._merges = Merges(opening, shelf, script.uses)
        self._ground = ground_of(opening, corpus, script, self._merges.version)
        self._judge = Judge(opening, shelf.behind, self.found)
        self._gpt = build(opening.run.model)
        self._trainees: dict[int, Trainee] = {}
        self._deltas: dict[int, tuple[DeltaOffered, Manifest]] = {}
        self._moments: dict[int, Raw] = {}
        self._stored: dict[int, CheckpointStored] = {}
        self._cursors: dict[str, Cursor] = {}
        self._tokens = 0

    def go(self, records: Sequence[Envelope], wanted: Wanted, tell: Tell) -> None:
        """To the end of the tape, or as far as is wanted."""
        found = self.found
        found.facts, found.only = len(records), tuple(sorted(set(wanted.learners)))
        last = len(records) if wanted.until is None else min(wanted.until, len(records))
        self._evaluate()
        for envelope in records[:last]:
            self._take(envelope)
            found.events = envelope.position
            if isinstance(envelope.event, FragmentMerged) and wanted.evaluate_merges:
                self._evaluate(wanted.evaluate_merges)
            tell(envelope.position, last)
        self._evaluate()

    def _take(self, envelope: Envelope) -> None:
        position, event = envelope.position, envelope.event
        match event:
            case LearnerJoined() if position in self._script.lives:
                self._begin(self._script.lives[position])
            case DeltaOffered() if event.incarnation in self._script.lives:
                self._reach(event.incarnation, event.learner_step)
                self._end(position, event.incarnation)
            case DeltaOffered() if position in self._script.merged_at:
                self._deltas[position] = event, event.manifest
                self.found.others += 1
            case CheckpointStored():
                if position in self._script.moments:
                    self._stored[position] = event
                if event.incarnation in self._script.lives:
                    self._reach(event.incarnation, event.learner_step)
                    self._end(position, event.incarnation)
            case RoundOpened():
                self._tokens = event.tokens
            case FragmentMerged():
                self._merge(position, event)
            case RunClosed():
                digest = model_digest(self._opening.layout, self._merges.newest())
                self._judge.model(position, event, digest)
            case _:
                pass

    def _begin(self, life: Life) -> None:
        """A life begins, if anything of it is seen again."""
        theirs = life.joined.fingerprint
        row = Row(life.learner, life.incarnation)
        self.found.rows[life.incarnation] = row
        if not self.found.synthetic:
            _set_threads(theirs)
            row.differs = differences(fingerprint(torch.device("cpu")), theirs)
        if life.last_position == life.incarnation:
            return
        moments = self._moments_of(life) if life.moments_at else None
        trainee = Trainee(life, self._ground, moments)
        if self.found.synthetic and life.learner in self._cursors:
            trainee.resume(self._cursors[life.learner])  # a made-up word carries no cursor
        self._trainees[life.incarnation] = trainee

    def _moments_of(self, life: Life) -> Raw:
        """The moments that a life begins with: as made again, else as stored."""
        place = life.moments_at
        moments = self._moments.get(place)
        if moments is None:
            stored = self._stored[place]
            key = key_of_checkpoint(self._opening.run.name, stored)
            moments = read_raw(self._shelf.behind, key, stored.manifest)
        self._script.moments[place] -= 1
        if not self._script.moments[place]:
            self._moments.pop(place, None)
        return moments

    def _reach(self, incarnation: int, step: int) -> None:
        trainee, row = self._trainees[incarnation], self.found.rows[incarnation]
        if not self.found.synthetic:
            _set_threads(trainee.life.joined.fingerprint)
        before = trainee.step
        for made in trainee.reach(step):
            if isinstance(made, MadeDelta):
                self._cursors[trainee.life.learner] = made.cursor
                manifest = self._judge.delta(row, made)
                if made.position in self._script.merged_at:
                    self._deltas[made.position] = made.offer, manifest
                    if manifest == made.encoded.manifest:
                        self._shelf.put(self._merges.key(made.offer, manifest), made.encoded.parts)
                continue
            stored = self._judge.checkpoint(row, made)
            if stored is not None:
                trainee.take(stored)
            if made.position in self._script.moments:
                self._moments[made.position] = made.arrays if stored is None else stored
        row.steps += trainee.step - before
        row.adoptions = trainee.adoptions

    def _end(self, position: int, incarnation: int) -> None:
        """Lets go of a life of which nothing more is seen."""
        if position == self._script.lives[incarnation].last_position:
            del self._trainees[incarnation]

    def _merge(self, position: int, event: FragmentMerged) -> None:
        order = self._merges.order(event, self._deltas)
        made = self._merges.make(order, position)
        if made.left_out and not self.found.synthetic:
            first = made.left_out[0]
            raise Differs(
                f"the delta of {first.position} cannot be merged: {first.reason}", position
            )
        self.found.made += 1
        chosen = self._judge.merge(position, event, order, made)
        self._merges.step(order, made, chosen)
        for offer in event.contributions:
            self._shelf.drop(self._merges.key(*self._deltas.pop(offer)))

    def _evaluate(self, every_merges: int = 1) -> None:
        """The loss of the merged model, unless it is taken already, or not due yet."""
        step, losses = self.found.made, self.found.losses
        if step % every_merges or (losses and losses[-1].step == step):
            return
        parameters_into(self._gpt, dict(self._merges.newest()))
        tokens = self._opening.run.training.evaluate_tokens
        loss = held_out_loss(self._gpt, self._corpus, tokens)
        losses.append(Loss(step, self._tokens, loss))


def _set_threads(theirs: str) -> None:
    """As many threads as the fingerprint was taken with: they are part of the arithmetic."""
    threads = threads_of(theirs)
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
