"""An evaluator's life on memory bodies: it reads a tape and a store and speaks to an inbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decodiloco.config import Config, parse_config
from decodiloco.errors import BlobMissing, ConfigDiffers
from decodiloco.fragments.of_model import trained
from decodiloco.opening import Opening, encode_opening
from decodiloco.places import Places
from decodiloco.store.keys import global_key, opening_key
from decodiloco.store.memory import MemoryStore
from decodiloco.store.small import put_small
from decodiloco.store.tensors import encode_tensors
from decodiloco.training.corpus import read_corpus
from decodiloco.training.evaluation import held_out_loss, parameters_into
from decodiloco.training.evaluator import Evaluator
from decodiloco.training.gpt import build
from streams.chain import Chain
from streams.codec import decode_word, seal
from streams.envelope import Envelope
from streams.events import EvaluationReported, Event, FragmentMerged
from streams.manifest import Manifest
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from tests.builders import RUN, closed, evaluated, merged, opened, round_opened

LIMIT_SECONDS = 60
Arrays = dict[str, np.ndarray]


class Trial:
    """A run of two fragments in memory, and whoever admits what is said to its inbox."""

    def __init__(self, folder: Path) -> None:
        text = folder / "text.txt"
        text.write_bytes(bytes(range(256)) * 20)
        self.config = _config(str(text))
        self.store = MemoryStore("trial")
        self.tape, self.inbox = MemoryTape(RUN), MemoryInbox(RUN)
        self.places = Places(self.tape, {"home": self.inbox}, MemoryPulse(RUN), self.store)
        self.corpus = read_corpus(self.config.run.training, self.config.run.model.context)
        self.gpt = build(self.config.run.model)
        self.layout = trained(self.gpt).layout(self.config.run)
        self._chain = Chain(RUN)

    def evaluator(self, config: Config | None = None) -> Evaluator:
        return Evaluator(config or self.config, self.places, "evaluator", self.corpus)

    def arrays(self, fragment: int, add: float) -> Arrays:
        """The first parameters of a fragment, moved a little."""
        named = dict(self.gpt.named_parameters())
        names = [tensor.name for tensor in self.layout.of(fragment)]
        return {name: named[name].detach().numpy() + np.float32(add) for name in names}

    def put(self, fragment: int, version: int, add: float) -> Manifest:
        encoded = encode_tensors(self.arrays(fragment, add), "fp32")
        self.store.put(global_key(RUN, fragment, version, encoded.manifest), encoded.parts)
        return encoded.manifest

    def loss(self, *adds: float) -> float:
        """What the evaluator must find when each fragment is moved by so much."""
        gpt = build(self.config.run.model)
        moved = [self.arrays(fragment, add) for fragment, add in enumerate(adds)]
        parameters_into(gpt, {name: array for part in moved for name, array in part.items()})
        return held_out_loss(gpt, self.corpus, self.config.run.training.evaluate_tokens)

    async def open(self) -> None:
        run = self.config.run
        first = tuple(self.put(fragment, 0, 0.0) for fragment in range(2))
        payload, _ = encode_opening(Opening(run, self.layout, first))
        manifest = put_small(self.store, lambda one: opening_key(RUN, one), payload)
        layout = self.layout.digest
        await self.append(opened(config_digest=run.digest, layout_digest=layout, opening=manifest))

    def merge(self, round: int, fragment: int, version: int, add: float) -> FragmentMerged:
        parameters = self.put(fragment, version, add)
        return merged(round, fragment, version, parameters=parameters)

    async def append(self, *events: Event) -> None:
        for event in events:
            position = self._chain.position + 1
            envelope = seal(position, self._chain.tip, 1, "syncer-1", None, 0.0, event)
            await self.tape.append([envelope])
            self._chain = self._chain.then(envelope)

    @asynccontextmanager
    async def admitting(self) -> AsyncIterator[None]:
        """Meanwhile, every word goes onto the tape as it is."""

        async def admit() -> None:
            async for letter in self.inbox.follow(0):
                await self.append(decode_word(letter.payload))

        task = asyncio.create_task(admit())
        try:
            yield
        finally:
            task.cancel()

    async def reports(self, count: int) -> list[EvaluationReported]:
        """The evaluations on the tape, once there are so many."""
        found: list[EvaluationReported] = []
        async for envelope in self.tape.follow(0):
            if isinstance(envelope.event, EvaluationReported):
                found.append(envelope.event)
            if len(found) == count:
                break
        return found


def _config(data: str, **settings: object) -> Config:
    model = {"layers": 1, "width": 16, "heads": 2, "context": 8}
    training = {"data": data, "shards": 1, "evaluate_merges": 2, "evaluate_tokens": 256}
    run = {"name": RUN, "fragments": 2, "model": model, "training": training, **settings}
    return parse_config({"run": run, "here": {"store": "memory://trial"}})


def test_an_evaluator_reports_the_opening_then_the_newest_cut_then_the_last(tmp_path: Path):
    trial = Trial(tmp_path)

    async def story() -> list[EvaluationReported]:
        async with asyncio.timeout(LIMIT_SECONDS), trial.admitting():
            await trial.open()
            life = asyncio.create_task(trial.evaluator().run())
            await trial.reports(1)
            await trial.append(trial.merge(0, 0, 1, 0.01), round_opened(round=1, tokens=500))
            await trial.append(trial.merge(1, 1, 1, 0.02))
            await trial.reports(2)
            await trial.append(trial.merge(2, 0, 2, 0.03), closed(step=3, tokens=900))
            await life
            return await trial.reports(3)

    reports = asyncio.run(story())

    assert [(one.said, one.step, one.versions, one.tokens) for one in reports] == [
        (1, 0, (0, 0), 0),
        (2, 2, (1, 1), 500),
        (3, 3, (2, 1), 900),
    ]
    expected = [trial.loss(0, 0), trial.loss(0.01, 0.02), trial.loss(0.03, 0.02)]
    assert [one.loss for one in reports] == pytest.approx(expected, rel=1e-6)
    assert {one.dataset_digest for one in reports} == {trial.corpus.digest}


def test_a_restarted_evaluator_says_nothing_twice(tmp_path: Path):
    trial = Trial(tmp_path)

    async def story() -> list[EvaluationReported]:
        async with asyncio.timeout(LIMIT_SECONDS), trial.admitting():
            await trial.open()
            await trial.append(trial.merge(0, 0, 1, 0.01), closed(step=1))
            await trial.evaluator().run()
            await trial.evaluator().run()
            return await trial.reports(2)

    reports = asyncio.run(story())

    assert [one.step for one in reports] == [0, 1]
    assert asyncio.run(trial.tape.last()) == 5


def test_a_config_that_is_not_the_runs_is_refused(tmp_path: Path):
    trial = Trial(tmp_path)
    other = _config(trial.config.run.training.data, quorum=2)

    async def story() -> None:
        await trial.open()
        await trial.evaluator(other).run()

    with pytest.raises(ConfigDiffers, match=r"run\.quorum is 2 here and 1 in the run"):
        asyncio.run(asyncio.wait_for(story(), LIMIT_SECONDS))


class Paused(MemoryTape):
    """A tape of which an evaluator that was frozen has not read on beyond a position."""

    looks = 0

    def __init__(self, position: int) -> None:
        super().__init__(RUN)
        self._position = position
        self._reads_on = asyncio.Event()

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        async for envelope in super().follow(after, learner):
            if envelope.position > self._position:
                await self._reads_on.wait()
            yield envelope

    async def last(self) -> int:
        self.looks += 1
        if self.looks == 1:
            return self._position
        self._reads_on.set()
        return await super().last()


def test_a_cut_that_was_let_go_of_during_a_pause_is_passed_over_for_the_newest(tmp_path: Path):
    trial = Trial(tmp_path)
    trial.tape = Paused(3)
    trial.places = replace(trial.places, tape=trial.tape)

    async def story() -> list[EvaluationReported]:
        async with asyncio.timeout(LIMIT_SECONDS), trial.admitting():
            await trial.open()
            known = evaluated(step=0, versions=(0, 0), dataset_digest=trial.corpus.digest)
            swept = merged(1, 0, 1)
            await trial.append(known, swept, trial.merge(2, 0, 2, 0.01), closed(step=3))
            await trial.evaluator().run()
            return await trial.reports(2)

    assert [one.step for one in asyncio.run(story())] == [0, 3]


def test_a_missing_blob_ends_the_evaluator_with_its_key(tmp_path: Path):
    trial = Trial(tmp_path)
    nowhere = merged(0, 0, 1)

    async def story() -> None:
        await trial.open()
        await trial.append(nowhere, closed(step=1))
        await trial.evaluator().run()

    with pytest.raises(BlobMissing, match="global/f0/1-"):
        asyncio.run(asyncio.wait_for(story(), LIMIT_SECONDS))
