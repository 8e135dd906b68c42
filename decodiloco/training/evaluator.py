"""The evaluator: a process that follows the tape and says the merged model's held-out loss.

It reads tape and store and speaks to an inbox like a learner; syncer and learners never wait
for it. It evaluates on the CPU in float32 with one thread, whatever the learners train on, so
that `replay` finds the same loss from the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import torch

from decodiloco.config import Config
from decodiloco.errors import BlobMissing
from decodiloco.learner.joining import read_opening
from decodiloco.places import Places, open_places
from decodiloco.stopping import first_of, run_until_stopped
from decodiloco.store.keys import global_key
from decodiloco.store.tensors import read_tensors
from decodiloco.telemetry import log
from decodiloco.times import EVALUATOR_FAREWELL_SECONDS_MAX, EVALUATOR_RETRY_SECONDS
from decodiloco.training.corpus import Corpus, read_corpus
from decodiloco.training.cuts import Cut, Watch
from decodiloco.training.evaluation import held_out_loss, parameters_into
from decodiloco.training.gpt import build
from streams.envelope import Envelope
from streams.errors import ChainBroken, Trouble
from streams.events import EvaluationReported, RunOpened
from streams.pulse import Beat
from streams.subjects import checked

Result = TypeVar("Result")


class Evaluator:
    """One life of an evaluator, from the first fact it reads to the run's end."""

    def __init__(self, config: Config, places: Places, speaker: str, corpus: Corpus) -> None:
        self._config = config
        self._places = places
        self._speaker = checked(speaker, "evaluator")
        self._corpus = corpus
        self._life = 1 + secrets.randbelow(2**53 - 1)
        self._said = 0
        self._position = 0
        self._caught_up_at = 0
        self._grown = asyncio.Event()
        self._gpt = build(config.run.model)
        self._log = log("evaluator").bind(run=config.run.name)

    async def run(self) -> None:
        """Evaluates until the run is closed and its last evaluation stands on the tape.

        Raises ConfigDiffers for a run opened with another config, Corrupt when what was stored
        cannot be read, and Trouble when no syncer admits the last word within a minute.
        """
        try:
            await self._run()
        except BaseExceptionGroup as group:  # of a task group's failures the first is the cause
            raise first_of(group) from None

    async def _run(self) -> None:
        self._caught_up_at = await self._places.tape.last()
        facts = self._places.tape.follow(0)
        async with contextlib.aclosing(facts), asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat())
            watch = await self._opened(facts)
            following = group.create_task(self._follow(facts, watch))
            await self._evaluate(watch)
            beating.cancel()
            following.cancel()

    async def _opened(self, facts: AsyncGenerator[Envelope, None]) -> Watch:
        """Reads the first fact and the opening that it names."""
        envelope = await anext(facts)
        opened = envelope.event
        run = self._config.run
        if not isinstance(opened, RunOpened):
            raise ChainBroken(envelope.position, "the first record opens no run")
        opening = await asyncio.to_thread(read_opening, self._places.store, run, opened)
        self._position = envelope.position
        cut = Cut(0, (0,) * run.fragments, 0, opening.fragments)
        return Watch(run.evaluate_every_merges, self._corpus.digest, cut, cut)

    async def _follow(self, facts: AsyncGenerator[Envelope, None], watch: Watch) -> None:
        async for envelope in facts:
            watch.fold(envelope)
            self._position = envelope.position
            self._grown.set()

    async def _beat(self) -> None:
        while True:
            beat = Beat("evaluator", self._speaker, {"position": self._position})
            await self._places.pulse.beat(beat)
            await asyncio.sleep(self._config.run.times.heartbeat_seconds)

    async def _evaluate(self, watch: Watch) -> None:
        while not watch.finished:
            self._grown.clear()
            cut = watch.due(self._position >= self._caught_up_at)
            if cut is not None:
                await self._report(cut, watch)
            elif watch.all_said:
                await self._farewell(watch)
            else:
                await self._grown.wait()

    async def _report(self, cut: Cut, watch: Watch) -> None:
        """Evaluates one cut and says its loss. Admission ignores a word's second arrival.

        After a pause of ours a horizon may have let go of the cut: then a newer one is due.
        """
        try:
            loss = await self._patiently(lambda: asyncio.to_thread(self._loss, cut))
        except BlobMissing:
            await self._read_on()
            if cut.step in (0, watch.newest.step):
                raise
            return
        self._said += 1
        word = EvaluationReported(
            speaker=self._speaker,
            life=self._life,
            said=self._said,
            step=cut.step,
            versions=cut.versions,
            tokens=cut.tokens,
            loss=loss,
            dataset_digest=self._corpus.digest,
        )
        inbox = self._places.inboxes[self._config.here.region]
        await self._patiently(lambda: inbox.say(word))
        watch.reported.add(cut.step)
        self._log.info("evaluated", step=cut.step, tokens=cut.tokens, loss=round(loss, 4))

    async def _read_on(self) -> None:
        """Until all that the tape holds now is folded."""
        last = await self._patiently(self._places.tape.last)
        while self._position < last:
            self._grown.clear()
            await self._grown.wait()

    async def _patiently(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Tries again on trouble outside, for as long as a learner would."""
        patience_seconds = self._config.run.times.orphan_seconds_max
        deadline = asyncio.get_running_loop().time() + patience_seconds
        while True:
            try:
                return await attempt()
            except Trouble as trouble:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                self._log.warning("trying again", reason=str(trouble))
                await asyncio.sleep(EVALUATOR_RETRY_SECONDS)

    def _loss(self, cut: Cut) -> float:
        run = self._config.run
        arrays = {}
        for fragment, manifest in enumerate(cut.parameters):
            key = global_key(run.name, fragment, cut.versions[fragment], manifest)
            arrays.update(read_tensors(self._places.store, key, manifest))
        parameters_into(self._gpt, arrays)
        return held_out_loss(self._gpt, self._corpus, run.training.evaluate_tokens)

    async def _farewell(self, watch: Watch) -> None:
        """Waits for a syncer to put the last evaluation on the tape."""
        try:
            async with asyncio.timeout(EVALUATOR_FAREWELL_SECONDS_MAX):
                while not watch.finished:
                    self._grown.clear()
                    await self._grown.wait()
        except TimeoutError:
            raise Trouble(
                f"run {self._config.run.name}: the last evaluation (step {watch.newest.step}) "
                f"was not admitted within {EVALUATOR_FAREWELL_SECONDS_MAX:.0f} s; is a syncer "
                "running?"
            ) from None


def run_evaluator(config: Config, speaker: str = "evaluator") -> None:
    """Runs an evaluator of the built-in model until the run's end, SIGTERM or SIGINT."""
    torch.set_num_threads(1)
    run_until_stopped(_run(config, speaker))


async def _run(config: Config, speaker: str) -> None:
    run = config.run
    corpus = await asyncio.to_thread(read_corpus, run.training, run.model.context)
    places = await open_places(config, speaker)
    try:
        await Evaluator(config, places, speaker, corpus).run()
    finally:
        await places.close()
