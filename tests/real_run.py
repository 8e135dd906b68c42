"""A whole small run on the production machines, with real blobs and no clock, thread or server.

Its tape is what a live run of three learners would have written; every blob that it names is in
the store. One learner is refused once, some offers are left out, one learner comes back in a
new life, one syncer takes over from another, and one merge is abandoned and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from decodiloco.config import Run
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.fragment import Abandoned
from decodiloco.merge.model_digest import model_digest
from decodiloco.merge.self_test import self_test
from decodiloco.opening import Opening, encode_opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import checkpoint_key, delta_key, global_key, opening_key, snapshot_key
from decodiloco.store.small import put_small
from decodiloco.store.tensors import encode_raw, encode_tensors, read_tensors
from decodiloco.syncer import drafting
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import (
    Ask,
    CloseRun,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    StoreSnapshot,
    merge_order,
    owed,
)
from decodiloco.syncer.snapshot import encode_state
from decodiloco.syncer.state import State
from replay.tape_file import Header
from replay.tape_writer import open_writer
from streams.codec import encode_event
from streams.envelope import Envelope, Source
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    Event,
    LearnerJoined,
    LearnerLeft,
    RunOpened,
    SyncerTookOver,
    Word,
    speaker_of,
)
from streams.inbox import Letter
from streams.manifest import Manifest
from streams.parts import Adoption, Moments

TOKENS_PER_STEP = 100
ROWS = 40


@dataclass
class Pupil:
    """A learner of the run: what it would hold, without a model."""

    name: str
    incarnation: int = 0
    said: int = 0
    step: int = 0
    versions: list[int] = field(default_factory=list)
    anchors: list[int] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)


class RealRun:
    """Plays a run to its end; then `tape` is the record and `store` holds the blobs."""

    rows = ROWS

    def __init__(self, store: BlobStore, steps: int = 8, fragments: int = 3, name: str = "real"):
        self.store = store
        self.name = name
        self.tape: list[Envelope] = []
        self.sequence = 0
        self.pen = Pen("opener", 0)
        self.opening = self._opening(steps, fragments)
        self.state: State = begin(self.opening)
        self.pupils = {learner: Pupil(learner) for learner in "abc"}
        self._open()

    def play(self) -> RealRun:
        """Everything from the first takeover to the last farewell."""
        self.take_over("syncer-1")
        for pupil in self.pupils.values():
            self.join(pupil)
        hardships = self._hardships()
        while self.state.closed is None:
            self._carry_out(hardships)
        for pupil in self.pupils.values():
            self._leave(pupil)
        return self

    def take_over(self, syncer: str) -> None:
        """A syncer begins to write."""
        self.pen = Pen(syncer, self.state.fence + 1)
        answer = self_test()
        self.write(
            SyncerTookOver(
                syncer=syncer, fence=self.pen.fence, rules=1, self_test=answer, fingerprint="test"
            )
        )

    def join(self, pupil: Pupil) -> None:
        """A learner's life begins, at the newest versions."""
        known = self.state.learners.get(pupil.name)
        pupil.step = known.learner_step if known else 0
        self.say(
            LearnerJoined(
                learner=pupil.name,
                slot=0,
                nonce=f"{pupil.name} {self.state.position}".rjust(16).encode()[-16:],
                seen=self.state.position,
                region="home",
                layout_digest=self.opening.layout.digest,
                fingerprint="test",
                cursor=b"",
                learner_step=pupil.step,
                tokens_trained=TOKENS_PER_STEP * pupil.step,
                versions=self.state.versions,
                moments=Moments(source="zero", age_steps=0),
            )
        )
        pupil.incarnation, pupil.said = self.state.position, 0
        pupil.versions = list(self.state.versions)
        pupil.anchors = [pupil.step] * len(pupil.versions)
        pupil.adoptions = []

    def offer(self, pupil: Pupil, round_number: int, spoil: str = "") -> None:
        """A learner trains two steps and answers a round; `spoil` says what is wrong with it."""
        pupil.step += 2
        round_ = self.state.rounds[round_number]
        fragment, inner_steps = round_.fragment, pupil.step - pupil.anchors[round_.fragment]
        blob = encode_tensors(self._delta(pupil, fragment, spoil), "bf16", squares=True)
        key = delta_key(
            self.name, pupil.name, pupil.incarnation, fragment, pupil.step, blob.manifest
        )
        if spoil not in ("missing", "base"):  # a refusal does not name the bytes it refused
            self.store.put(key, blob.parts)
        pupil.said += 1
        word = DeltaOffered(
            learner=pupil.name,
            incarnation=pupil.incarnation,
            said=pupil.said,
            seen=self.state.position,
            round=round_number,
            fragment=fragment,
            base_version=pupil.versions[fragment] + (7 if spoil == "base" else 0),
            learner_step=pupil.step,
            inner_steps=inner_steps,
            tokens=TOKENS_PER_STEP * inner_steps,
            tokens_trained=TOKENS_PER_STEP * pupil.step,
            step_seconds=1.0,
            upload_seconds=0.5,
            loss=4.0,
            cursor=b"",
            adopted=tuple(pupil.adoptions),
            manifest=blob.manifest,
        )
        if spoil != "base":
            pupil.adoptions = []
        self.say(word)

    def checkpoint(self, pupil: Pupil) -> None:
        """A learner's inner state is stored."""
        moments = np.arange(6, dtype=np.float32).reshape(2, 3)
        blob = encode_raw({"moments": moments, "random": np.arange(5, dtype=np.uint8)})
        self.store.put(checkpoint_key(self.name, pupil.name, pupil.step, blob.manifest), blob.parts)
        pupil.said += 1
        self.say(
            CheckpointStored(
                learner=pupil.name,
                incarnation=pupil.incarnation,
                said=pupil.said,
                learner_step=pupil.step,
                step=self.state.step,
                manifest=blob.manifest,
            )
        )

    def say(self, word: Word) -> None:
        """A word through admission and onto the tape."""
        self.sequence += 1
        source = Source("home", "life", self.sequence)
        letter = Letter(source, speaker_of(word), word.kind, encode_event(word))
        before = self.state.position
        self._put(drafting.from_letter(letter, _must_read))
        assert self.state.position == before + 1, f"{word} became nothing"

    def write(self, event: Event) -> None:
        """A fact of the syncer's own."""
        self._put(Draft(lambda _: event))

    def save_tape(self, path: Path) -> Path:
        """The record as a sealed tape file."""
        writer = open_writer(path, Header(self.name, self.store.url))
        writer.append(self.tape)
        writer.seal()
        return path

    def _opening(self, steps: int, fragments: int) -> Opening:
        run = Run.model_validate(
            {
                "name": self.name,
                "fragments": fragments,
                "inner_steps": 2 * fragments,
                "learners_min": 3,
                "quorum": 2,
                "window": {"overlap": 1},
                "times": {"fetch_seconds_max": 0.01},
                "end": {"steps": steps},
            }
        )
        tensors = tuple(
            Tensor(
                name=f"layer{fragment}.{kind}",
                shape=(self.rows, 3) if kind == "weight" else (3,),
                dtype="bfloat16" if kind == "bias" else "float32",
                fragment=fragment,
                rule="radial" if kind == "weight" else "mean",
            )
            for fragment in range(fragments)
            for kind in ("bias", "weight")
        )
        layout = Layout(fragments=fragments, tensors=tensors)
        first = tuple(self._put_fragment(layout, fragment) for fragment in range(fragments))
        return Opening(run, layout, first)

    def _put_fragment(self, layout: Layout, fragment: int) -> Manifest:
        draw = np.random.default_rng(fragment)
        arrays = {
            tensor.name: draw.standard_normal(tensor.shape, dtype=np.float32)
            for tensor in layout.of(fragment)
        }
        blob = encode_tensors(arrays, "fp32")
        self.store.put(global_key(self.name, fragment, 0, blob.manifest), blob.parts)
        return blob.manifest

    def _open(self) -> None:
        payload, manifest = encode_opening(self.opening)
        self.store.put(opening_key(self.name, manifest), [payload])
        self.write(
            RunOpened(
                run=self.name,
                config_digest=self.opening.run.digest,
                layout_digest=self.opening.layout.digest,
                store=self.store.url,
                opening=manifest,
                rules=1,
            )
        )

    def _hardships(self) -> Iterator[Callable[[int], None]]:
        """What goes wrong in the n-th round, in order."""
        a, b, c = self.pupils.values()

        def refused(number: int) -> None:
            self.offer(a, number, spoil="base")

        def left_out(number: int) -> None:
            self.offer(c, number, spoil="not finite")

        def absent(number: int) -> None:
            self.offer(b, number, spoil="missing")

        def early(number: int) -> None:
            self.offer(a, number)

        def reborn(number: int) -> None:
            self.join(b)
            self.checkpoint(b)

        def taken_over(number: int) -> None:
            self.take_over("syncer-2")

        def abandoned(number: int) -> None:
            self.offer(b, number, spoil="not finite")
            self.offer(c, number, spoil="missing")

        yield from (refused, left_out, early, reborn, taken_over, absent, abandoned)

    def _carry_out(self, hardships: Iterator[Callable[[int], None]]) -> None:
        """What the state owes, without waiting for any clock."""
        asks = [ask for ask in owed(self.state) if not isinstance(ask, DeclareLost)]
        assert asks, "a run that owes nothing is stuck"
        ask = next((ask for ask in asks if isinstance(ask, StoreSnapshot)), asks[0])
        match ask:
            case MergeFragment():
                self._merge(ask)
            case StoreSnapshot():
                payload, state = encode_state(self.state), self.state
                manifest = put_small(
                    self.store,
                    lambda named: snapshot_key(self.name, state.position, named),
                    payload,
                )
                self._put(drafting.from_snapshot(state.position, manifest))
            case CloseRun():
                digest = model_digest(self.opening.layout, self._newest())
                self._put(drafting.from_close(self.state.versions, digest))
            case _:
                self._timed(ask, hardships)

    def _timed(self, ask: Ask, hardships: Iterator[Callable[[int], None]]) -> None:
        assert not isinstance(ask, MergeFragment | StoreSnapshot | CloseRun)
        self._put(drafting.from_timed(ask, drafting.Waited(0.5, 1.0), self.pen.writer))
        if isinstance(ask, OpenRound):
            next(hardships, lambda number: None)(ask.round)
            answered = {offer.learner for offer in self.state.waiting(ask.fragment)}
            for pupil in self.pupils.values():
                if pupil.name not in answered:
                    self.offer(pupil, ask.round)
        assert isinstance(ask, OpenRound | CloseWindow) or self.state.closing

    def _merge(self, ask: MergeFragment) -> None:
        order = merge_order(self.state, ask.round)
        made = carry_out(order, self.store, sleep=lambda seconds: None)
        self._put(drafting.from_merge(ask, made, 0.25))
        if isinstance(made, Abandoned):
            left_out = [each.position for each in made.left_out]
            for each in order.contributions:
                if each.position in left_out:
                    self.offer(self.pupils[each.learner], ask.round)
            return
        for pupil in self.pupils.values():
            self._adopt(pupil, order.fragment, order.version)

    def _adopt(self, pupil: Pupil, fragment: int, version: int) -> None:
        pupil.versions[fragment], pupil.anchors[fragment] = version, pupil.step
        pupil.adoptions.append(
            Adoption(
                fragment=fragment,
                version=version,
                learner_step=pupil.step,
                tokens_trained=TOKENS_PER_STEP * pupil.step,
                fetch_seconds=0.25,
            )
        )

    def _leave(self, pupil: Pupil) -> None:
        assert self.state.closed is not None
        pupil.said += 1
        self.say(
            LearnerLeft(
                learner=pupil.name,
                incarnation=pupil.incarnation,
                said=pupil.said,
                seen=self.state.position,
                reason="finished",
                learner_step=pupil.step,
                tokens_trained=TOKENS_PER_STEP * pupil.step,
                cursor=b"",
                adopted=tuple(pupil.adoptions),
                digest=self.state.closed.digest,
            )
        )

    def _newest(self) -> Iterator[tuple[str, np.ndarray]]:
        for fragment, manifest in enumerate(self.state.parameters):
            key = global_key(self.name, fragment, self.state.versions[fragment], manifest)
            yield from read_tensors(self.store, key, manifest).items()

    def _delta(self, pupil: Pupil, fragment: int, spoil: str) -> dict[str, np.ndarray]:
        draw = np.random.default_rng([ord(pupil.name), fragment, pupil.step])
        deltas = {
            tensor.name: draw.standard_normal(tensor.shape, dtype=np.float32) / 100
            for tensor in self.opening.layout.of(fragment)
        }
        if spoil == "not finite":
            next(iter(deltas.values()))[0] = np.nan
        return deltas

    def _put(self, draft: Draft) -> None:
        for envelope in compose(self.state, [draft], self.pen, 1000.0 + self.state.position):
            self.state = fold(self.state, envelope)
            self.tape.append(envelope)


def _must_read(letter: Letter, verdict: object) -> None:
    raise AssertionError(f"{letter.kind} by {letter.speaker}: {verdict}")
