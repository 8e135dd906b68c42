"""A run in memory with real bytes and scripted learners, for a real syncer to serve.

Two learners answer every round at learner step four times its number, from deltas that follow
from learner, fragment and round alone. Their words are the same in every telling of the story,
so two tellings may be compared by what was merged.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from decodiloco.config import Config, parse_config
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.opening import Opening, encode_opening
from decodiloco.places import Places
from decodiloco.store.keys import delta_key, global_key, opening_key
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import encode_tensors
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.state import RULES, State
from streams.codec import seal
from streams.envelope import genesis
from streams.events import (
    DeltaOffered,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    RoundOpened,
    RunClosed,
    RunOpened,
)
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from streams.parts import Adoption
from streams.pulse import Beat
from tests.builders import digest, joined

FRAGMENTS, ELEMENTS, STEPS, TOKENS = 3, 1000, 4, 100


def config_of(name: str, here: dict[str, str] | None = None, **settings: object) -> Config:
    """Quick heartbeats, a quorum of both, an end after six merges."""
    run = {
        "name": name,
        "fragments": FRAGMENTS,
        "inner_steps": FRAGMENTS,
        "quorum": 2,
        "learners_min": 2,
        "end": {"steps": 6},
        "window": {"step_seconds": 0.02, "upload_seconds": 0.02, "overlap": 1},
        "times": {
            "heartbeat_seconds": 0.03,
            "takeover_seconds": 0.2,
            "lost_seconds": 60.0,
            "orphan_seconds_max": 600.0,
        },
        **settings,
    }
    return parse_config({"run": run, "here": here or {"store": f"memory://{name}"}})


def values(*names: object) -> np.ndarray:
    """Numbers that follow from names."""
    seed = int.from_bytes(digest(" ".join(map(str, names)))[:8], "big")
    return np.random.Generator(np.random.Philox(seed)).standard_normal(ELEMENTS, dtype=np.float32)


@dataclass
class Story:
    """One telling: its places, and the learners' side of it."""

    config: Config
    places: Places
    opening: Opening

    async def learners(self) -> None:
        """Says what both learners say, as the tape goes on, until the run is closed."""
        beats = asyncio.create_task(self.beat())
        try:
            await self.talk()
        finally:
            beats.cancel()

    async def beat(self) -> None:
        """Both are alive."""
        while True:
            for name in ("a", "b"):
                await self.places.pulse.beat(Beat("learner", name, {"learner_step": 0}))
            await asyncio.sleep(self.config.run.times.heartbeat_seconds)

    async def talk(self) -> None:
        """The words of both, one after another."""
        inbox = self.places.inboxes["home"]
        versions = [0] * FRAGMENTS
        lives: dict[str, int] = {}
        said = {"a": 0, "b": 0}
        told = {"a": [0] * FRAGMENTS, "b": [0] * FRAGMENTS}
        for name in ("a", "b"):
            await inbox.say(
                joined(name, layout_digest=self.opening.layout.digest, versions=(0,) * FRAGMENTS)
            )
        async for envelope in self.places.tape.follow(0):
            event = envelope.event
            if isinstance(event, LearnerJoined):
                lives[event.learner] = envelope.position
            elif isinstance(event, FragmentMerged):
                versions[event.fragment] = event.version
            elif isinstance(event, RoundOpened):
                for name in ("a", "b"):
                    said[name] += 1
                    word = self.offer(name, lives[name], event, said[name], told[name])
                    await inbox.say(word)
            elif isinstance(event, RunClosed):
                for name in ("a", "b"):
                    await inbox.say(self.farewell(name, lives[name], said[name] + 1))
                return

    def offer(
        self, name: str, life: int, event: RoundOpened, said: int, told: list[int]
    ) -> DeltaOffered:
        """The delta is stored, then named: four steps since the last version was adopted."""
        step, fragment = STEPS * event.round, event.fragment
        delta = encode_tensors(
            {f"t{fragment}": values(name, event.round)}, self.config.run.codecs.delta, squares=True
        )
        key = delta_key(self.config.run.name, name, life, fragment, step, delta.manifest)
        self.places.store.put(key, delta.parts)
        adopted = ()
        if event.version - 1 > told[fragment]:
            told[fragment] = event.version - 1
            adopted = (
                Adoption(
                    fragment=fragment,
                    version=event.version - 1,
                    learner_step=step - STEPS,
                    tokens_trained=TOKENS * (step - STEPS),
                    fetch_seconds=0.01,
                ),
            )
        inner = STEPS if adopted else step
        return DeltaOffered(
            learner=name,
            incarnation=life,
            said=said,
            seen=0,
            round=event.round,
            fragment=fragment,
            base_version=event.version - 1,
            learner_step=step,
            inner_steps=inner,
            tokens=TOKENS * inner,
            tokens_trained=TOKENS * step,
            step_seconds=0.02,
            upload_seconds=0.01,
            loss=3.0,
            cursor=b"",
            adopted=adopted,
            manifest=delta.manifest,
        )

    def farewell(self, name: str, life: int, said: int) -> LearnerLeft:
        """Both have finished, at a step beyond all rounds."""
        return LearnerLeft(
            learner=name,
            incarnation=life,
            said=said,
            seen=0,
            reason="finished",
            learner_step=1000,
            tokens_trained=1000 * TOKENS,
            cursor=b"",
            adopted=(),
            digest=digest("model"),
        )

    async def state(self) -> State:
        """The tape, folded from its start by nobody but this test."""
        state = begin(self.opening)
        while records := await self.places.tape.read(state.position):
            for envelope in records:
                state = fold(state, envelope)
        return state


def memory_places(name: str) -> Places:
    """A run's four places in memory."""
    store = open_store(f"memory://{name}")
    return Places(MemoryTape(name), {"home": MemoryInbox(name)}, MemoryPulse(name), store)


async def open_story(config: Config, places: Places) -> Story:
    """Stores an opening and puts RunOpened on an empty tape."""
    name, store = config.run.name, places.store
    tensors = tuple(
        Tensor(
            name=f"t{number}",
            shape=(ELEMENTS,),
            dtype="float32",
            fragment=number,
            rule="mean" if number == 0 else "radial",
        )
        for number in range(FRAGMENTS)
    )
    manifests = []
    for number in range(FRAGMENTS):
        blob = encode_tensors({f"t{number}": values("first", number)}, "fp32")
        store.put(global_key(name, number, 0, blob.manifest), blob.parts)
        manifests.append(blob.manifest)
    layout = Layout(fragments=FRAGMENTS, tensors=tensors)
    opening = Opening(config.run, layout, tuple(manifests))
    payload, manifest = encode_opening(opening)
    store.put(opening_key(name, manifest), [payload])
    first = RunOpened(
        run=name,
        config_digest=config.run.digest,
        layout_digest=layout.digest,
        store=store.url,
        opening=manifest,
        rules=RULES,
    )
    await places.tape.append([seal(1, genesis(name), 0, "opener", None, time.time(), first)])
    return Story(config, places, opening)
