"""A syncer's desk without a syncer: the production machine, a pen, and an inbox in hand.

`desk.join("a")`, `desk.open_round()`, `desk.offer("a", 1)` read as the history of a run. Every
fact passes through admission and fold as in a live run; only clocks and threads are missing.
"""

from __future__ import annotations

from decodiloco.config import Run
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.fragments.schedule import fragment_of
from decodiloco.opening import Opening
from decodiloco.syncer.admission import Admitted, Verdict, admit
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.drafting import Waited, from_letter, from_timed
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import Ask, CloseWindow, OpenRound, owed
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from streams.codec import encode_event
from streams.envelope import Envelope, Source
from streams.events import DeltaOffered, Event, FragmentMerged, Word, speaker_of
from streams.inbox import Letter
from streams.manifest import Manifest
from tests.builders import abandoned, digest, joined, manifest, offered, opened, took_over

ELEMENTS = 64


def opening_of(fragments: int = 4, **settings: object) -> Opening:
    """A run of `fragments` fragments, one small tensor each."""
    run = Run.model_validate(
        {"name": "trial", "fragments": fragments, "inner_steps": fragments, **settings}
    )
    tensors = tuple(
        Tensor(
            name=f"t{number:03d}",
            shape=(ELEMENTS,),
            dtype="float32",
            fragment=number,
            rule="radial",
        )
        for number in range(fragments)
    )
    first = tuple(manifest(f"f{number} version 0") for number in range(fragments))
    return Opening(run, Layout(fragments=fragments, tensors=tensors), first)


def delta_manifest(name: str) -> Manifest:
    """A delta of a whole fragment, as an offer names it."""
    return manifest(name, size_bytes=2 * ELEMENTS + 200, codec="bf16")


class Desk:
    """The state of a run, and everything that was written to reach it."""

    def __init__(self, fragments: int = 4, **settings: object) -> None:
        self.opening = opening_of(fragments, **settings)
        self.state: State = begin(self.opening)
        self.tape: list[Envelope] = []
        self.sequence = 0
        self.said: dict[str, int] = {}
        self.steps: dict[str, int] = {}
        self.write(opened(layout_digest=self.opening.layout.digest), fence=0)
        self.write(took_over())

    def write(self, event: Event, fence: int | None = None) -> int:
        """Puts a fact on the tape as the leader would; its position."""
        pen = Pen("syncer-1", self.state.fence if fence is None else fence)
        return self._put(Draft(lambda _: event), pen)

    def letter(self, word: Word) -> Letter:
        """A word as the next letter of the home inbox."""
        self.sequence += 1
        source = Source("home", "life", self.sequence)
        return Letter(source, speaker_of(word), word.kind, encode_event(word))

    def say(self, word: Word) -> Verdict:
        """A word through admission, and onto the tape if it becomes a fact."""
        letter = self.letter(word)
        verdict = admit(self.state, letter)
        if isinstance(verdict, Admitted):
            draft = from_letter(letter, lambda *_: None)
            self._put(draft, Pen("syncer-1", self.state.fence))
        return verdict

    def join(self, name: str, **fields: object) -> int:
        """A learner joins at the newest versions; its incarnation."""
        known = self.state.learners.get(name)
        self.say(
            joined(
                name,
                **{
                    "layout_digest": self.opening.layout.digest,
                    "nonce": digest(f"{name} {self.state.position}")[:16],
                    "seen": self.state.position,
                    "versions": self.state.versions,
                    "learner_step": known.learner_step if known else 0,
                    "tokens_trained": known.tokens_trained if known else 0,
                    **fields,
                },
            )
        )
        self.said[name] = 0
        self.steps[name] = self.state.learners[name].learner_step
        return self.state.learners[name].incarnation

    def train(self, name: str, steps: int = 4) -> None:
        """Inner steps of 100 tokens each."""
        self.steps[name] += steps

    def offer(self, name: str, round_number: int, **fields: object) -> DeltaOffered:
        """The word with which a learner answers a round, from its anchor to its present step."""
        learner = self.state.learners[name]
        fragment = fragment_of(round_number, len(self.state.fragments))
        begin_step, step = learner.anchor_steps[fragment], self.steps[name]
        self.said[name] += 1
        return offered(
            name,
            **{
                "incarnation": learner.incarnation,
                "said": self.said[name],
                "seen": self.state.position,
                "round": round_number,
                "fragment": fragment,
                "base_version": learner.adopted[fragment],
                "learner_step": step,
                "inner_steps": step - begin_step,
                "tokens": 100 * (step - begin_step),
                "tokens_trained": 100 * step,
                "manifest": delta_manifest(f"{name} f{fragment} {step}"),
                **fields,
            },
        )

    def answer(self, name: str, round_number: int, **fields: object) -> Verdict:
        """A learner trains four steps and answers a round."""
        self.train(name)
        return self.say(self.offer(name, round_number, **fields))

    def asks(self, kind: type) -> list[Ask]:
        """What is owed of one kind."""
        return [ask for ask in owed(self.state) if isinstance(ask, kind)]

    def open_round(self) -> int:
        """Opens the round that is owed; its number."""
        (ask,) = self.asks(OpenRound)
        assert isinstance(ask, OpenRound)
        self._put(from_timed(ask, Waited(), "syncer-1"), Pen("syncer-1", self.state.fence))
        return ask.round

    def close_window(self, round_number: int) -> None:
        """Closes a window that may be closed."""
        (ask,) = [a for a in self.asks(CloseWindow) if a.round == round_number]
        assert isinstance(ask, CloseWindow)
        self._put(from_timed(ask, Waited(0.5, 1.0), "syncer-1"), Pen("syncer-1", 1))

    def merge(
        self,
        round_number: int,
        left_out: tuple[object, ...] = (),
        doubted: tuple[int, ...] = (),
    ) -> int:
        """Records the merge of a closed round; the position."""
        round_ = self.state.rounds[round_number]
        out = {item.position for item in left_out}
        name = f"f{round_.fragment} version {round_.version}"
        return self.write(
            FragmentMerged(
                round=round_number,
                fragment=round_.fragment,
                version=round_.version,
                step=self.state.step + 1,
                contributions=tuple(p for p in round_.offers if p not in out),
                doubted=doubted,
                left_out=left_out,
                parameters=manifest(f"parameters {name}"),
                momentum=manifest(f"momentum {name}"),
                report=manifest(f"report {round_number}", codec="msgpack"),
                outer_gradient_norm=0.125,
                merge_seconds=0.25,
                state_digest=state_digest(self.state),
            )
        )

    def abandon(self, round_number: int, left_out: tuple[object, ...]) -> int:
        """Records that a merge had too few sound offers."""
        return self.write(abandoned(round_number, left_out=left_out))

    def put(self, draft: Draft) -> int:
        """Writes a draft as the leader would; its position."""
        return self._put(draft, Pen("syncer-1", self.state.fence))

    def _put(self, draft: Draft, pen: Pen) -> int:
        (envelope,) = compose(self.state, [draft], pen, float(self.state.position + 1))
        self.state = fold(self.state, envelope)
        self.tape.append(envelope)
        return self.state.position
