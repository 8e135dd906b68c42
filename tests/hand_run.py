"""A run by hand: real learner cores, the real syncer's machine, real merges, no clock or thread.

`run.join("a")`, `run.open_round()`, `run.merge()` read as the history of a run. Every word goes
through admission and every fact through both folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import torch
from torch import nn

from decodiloco.config import Run
from decodiloco.fragments.of_model import trained
from decodiloco.learner.copies import copied
from decodiloco.learner.core import LearnerCore
from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.model_digest import model_digest
from decodiloco.merge.self_test import self_test
from decodiloco.opening import Opening, encode_opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, opening_key
from decodiloco.store.memory import MemoryStore
from decodiloco.store.tensors import encode_tensors, read_tensors
from decodiloco.syncer import drafting
from decodiloco.syncer.admission import Unreadable
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import Ask, CloseWindow, MergeFragment, OpenRound, merge_order, owed
from decodiloco.syncer.state import State
from replay.tape_file import Header
from replay.tape_writer import open_writer
from streams.codec import encode_event, pack
from streams.envelope import Envelope, Source
from streams.events import Event, RunClosed, RunClosing, RunOpened, Word, learner_of, speaker_of
from streams.inbox import Letter
from streams.parts import Moments
from tests.builders import took_over

NOW = drafting.Waited()


def small_model(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Three layers, five tensors, an embedding among them."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.Linear(5, 3))
    return model.to(dtype)


def plain_run(**settings: object) -> Run:
    """One learner's rounds: every step may open one, and nothing distorts what is merged."""
    return Run.model_validate(
        {
            "name": "trial",
            "fragments": 2,
            "inner_steps": 2,
            "merge": {"rule": "mean", "embedding_rule": "mean", "norm_clip": "none"},
            "outer": {"lr": 1.0, "momentum": 0.0},
            "codecs": {"delta": "fp32"},
            "training": {"checkpoint_steps": 1000},
            **settings,
        }
    )


class HandRun:
    """A run of one model; who joins gets a copy of it.

    `unknown` is a setting, such as "adoption.carry", that the build which opened the run did not
    know.
    """

    def __init__(
        self, run: Run, model: nn.Module, store: BlobStore | None = None, unknown: str = ""
    ) -> None:
        self.store = store or MemoryStore("hand")
        ours = trained(model)
        layout = ours.layout(run)
        manifests = []
        for fragment in range(layout.fragments):
            names = [tensor.name for tensor in layout.of(fragment)]
            encoded = encode_tensors(copied(ours.tensors, names), "fp32")
            key = global_key(run.name, fragment, 0, encoded.manifest)
            self.store.put(key, encoded.parts)
            manifests.append(encoded.manifest)
        self.opening = Opening(run, layout, tuple(manifests), stored_without(run, unknown))
        payload, manifest = encode_opening(self.opening)
        self.store.put(opening_key(run.name, manifest), [payload])
        self.state: State = begin(self.opening)
        self.tape: list[Envelope] = []
        self.cores: list[LearnerCore] = []
        self.complaints: list[str] = []
        self._sequence = count(1)
        self._nonces = count(1)
        opened = RunOpened(
            run=run.name,
            config_digest=self.opening.config_digest,
            layout_digest=layout.digest,
            store=self.store.url,
            opening=manifest,
            rules=1,
        )
        self.write(opened)
        self.write(took_over(fence=1, self_test=self_test()))

    def write(self, event: Event) -> None:
        """Puts a fact on the tape as the leading syncer would."""
        self.draft(Draft(lambda state: event))

    def draft(self, draft: Draft) -> bool:
        """Puts what a draft becomes on the tape, and into everybody; whether it became a fact."""
        batch = compose(self.state, [draft], Pen("s", self.state.fence), 0.0)
        for envelope in batch:
            self.state = fold(self.state, envelope)
            self.tape.append(envelope)
            for core in self.cores:
                self.give(core, envelope)
        return bool(batch)

    def save_tape(self, path: Path) -> Path:
        """The record as a sealed tape file."""
        writer = open_writer(path, Header(self.opening.run.name, self.store.url))
        writer.append(self.tape)
        writer.seal()
        return path

    def give(self, core: LearnerCore, envelope: Envelope) -> None:
        """What a filtered follower would give to this learner."""
        if learner_of(envelope.event) in (None, core.state.learner):
            core.fold(envelope)

    def hear(self, word: Word) -> bool:
        """A word as it goes through admission; whether it became a fact."""
        source = Source("home", "life", next(self._sequence))
        letter = Letter(source, speaker_of(word), word.kind, encode_event(word))
        return self.draft(drafting.from_letter(letter, self._complain))

    def join(self, learner: str, model: nn.Module, rate: float = 0.1) -> LearnerCore:
        """A new life of a learner, in the run and up to date."""
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        core = LearnerCore(self.opening, learner, trained(model).tensors, optimizer)
        for envelope in self.tape:
            self.give(core, envelope)
        core.load(self.store, next(self._nonces).to_bytes(16, "big"))
        self.cores.append(core)
        moments = Moments(source="zero", age_steps=0)
        assert self.hear(core.join_word("home", "test", moments)), self.complaints
        return core

    def exchange(self) -> None:
        """Everybody's deltas go up, their words are heard, merged versions come down."""
        for core in self.cores:
            self.work(core)
            while (word := core.say()) is not None:
                self.hear(word)
            self.work(core)

    def work(self, core: LearnerCore) -> None:
        """A learner's transfers, as if they took no time."""
        core.work(self.store)

    def asks(self, kind: type[Ask]) -> Iterator[Ask]:
        """What the syncer owes of one kind, by when it may be done at the latest."""
        return iter([ask for ask in owed(self.state) if isinstance(ask, kind)])

    def can_open(self) -> bool:
        """Whether a round may be opened now."""
        return any(True for _ in self.asks(OpenRound))

    def open_round(self) -> int:
        """Opens the next round, whatever its pace; its number."""
        number = self.state.next_round
        for ask in self.asks(OpenRound):
            assert isinstance(ask, OpenRound) and self.draft(drafting.from_timed(ask, NOW, "s"))
        assert self.state.next_round == number + 1, "no round may be opened now"
        return number

    def close_windows(self) -> None:
        """Closes every window whose quorum is in, as at the end of its grace."""
        for ask in self.asks(CloseWindow):
            assert isinstance(ask, CloseWindow) and self.draft(drafting.from_timed(ask, NOW, "s"))

    def merge(self) -> None:
        """Closes what can be closed, and merges what is closed."""
        self.close_windows()
        for ask in self.asks(MergeFragment):
            assert isinstance(ask, MergeFragment)
            merged = carry_out(merge_order(self.state, ask.round), self.store)
            self.draft(drafting.from_merge(ask, merged, 0.0))

    def close(self) -> RunClosed:
        """The run is closed at its versions as they stand."""
        self.write(RunClosing(speaker="operator", life=1, said=1, reason="asked"))
        self.draft(drafting.from_close(self.state.versions, self.digest()))
        assert self.state.closed is not None
        return self.state.closed

    def digest(self) -> bytes:
        """The digest of the merged model."""
        tensors: dict[str, object] = {}
        for fragment in range(len(self.state.fragments)):
            tensors.update(self.merged(fragment))
        return model_digest(self.opening.layout, tensors.items())

    def merged(self, fragment: int) -> dict[str, object]:
        """The newest version of a fragment."""
        newest = self.state.fragments[fragment]
        key = global_key("trial", fragment, newest.version, newest.parameters)
        return dict(read_tensors(self.store, key, newest.parameters))

    def facts(self, kind: type[Event]) -> list[Event]:
        """All facts of one kind so far."""
        return [envelope.event for envelope in self.tape if isinstance(envelope.event, kind)]

    def _complain(self, letter: Letter, verdict: Unreadable) -> None:
        self.complaints.append(verdict.reason)


def stored_without(run: Run, unknown: str) -> bytes:
    """A run's settings as they are stored, but for one."""
    settings = run.model_dump(mode="json")
    if unknown:
        table, _, name = unknown.partition(".")
        del settings[table][name]
    return pack(settings)


def train(model: nn.Module, core: LearnerCore, seed: int, cursor: bytes = b"") -> None:
    """One step on words that follow from the seed, and the boundary after it."""
    loss = train_plainly(model, core.optimizer, seed)
    core.step(tokens=8, loss=loss, cursor=cursor, step_seconds=1.0)


def train_plainly(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> float:
    """One step of the inner optimizer; the loss before it."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 7, (8,), generator=generator)
    wanted = torch.randint(0, 3, (8,), generator=generator)
    loss = nn.functional.cross_entropy(model(words).float(), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())
