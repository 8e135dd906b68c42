"""What kind of run a seed gives: how many learners, how fast, which settings. Drawn, then fixed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from decodiloco.config import Codecs, Gates, Run
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.opening import Opening, encode_opening, run_opened
from decodiloco.store.keys import global_key, opening_key
from decodiloco.store.tensors import encode_tensors
from decodiloco.syncer.grace import quantile
from decodiloco.syncer.state import RULES
from replay.world.places import WorldStore
from streams.events import RunOpened
from streams.manifest import Manifest

RUN = "world"
_IN_BLOCKS = (Codecs(delta="int4"), Codecs(delta="int8", feedback=True))


@dataclass(frozen=True, slots=True)
class LearnerCase:
    """One learner's machine: seconds a step, seconds an upload or a download, tokens a step."""

    id: str
    region: str
    step_seconds: float
    transfer_seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Case:
    """One world before anything goes wrong.

    `merges` is how many there are at least, when all goes on as it must. `hard_seconds` is how
    long things may go wrong; from then on all is well, and one merge follows another within about
    `merge_every_seconds`, or sooner.
    """

    seed: int
    merges: int
    opening: Opening
    opened: RunOpened
    learners: tuple[LearnerCase, ...]
    syncers: tuple[str, ...]
    mergers: tuple[str, ...]
    merge_seconds: float
    hard_seconds: float
    merge_every_seconds: float

    @property
    def pass_seconds(self) -> float:
        """About how long it takes until every fragment has had another version."""
        return self.opening.run.fragments * self.merge_every_seconds


def draw_case(seed: int, store: WorldStore, merges: int) -> Case:
    """The case of a seed, its opening stored; most of so many merges while things go wrong."""
    random = Random(f"case {seed}")
    keep_merges = Random(f"retention {seed}").choice((None, None, 1, 4, 12))
    run, learners = _draw_run_and_learners(random, merges, keep_merges)
    strikes = Random(f"gates {seed}").choice((0, 1, 2, 3))
    coded = Random(f"codecs {seed}").choice((run.codecs, run.codecs, *_IN_BLOCKS))
    run = run.model_copy(update={"gates": Gates(strikes=strikes), "codecs": coded})
    mergers = Random(f"mergers {seed}").choice((0, 0, 1, 2))
    layout = _layout(run.fragments)
    first = tuple(_put_fragment(store, layout, fragment, seed) for fragment in range(run.fragments))
    opening = Opening(run, layout, first)
    payload, manifest = encode_opening(opening)
    store.put(opening_key(RUN, manifest), [payload])
    return Case(
        seed=seed,
        merges=merges,
        opening=opening,
        opened=run_opened(opening, store.url, RULES),
        learners=learners,
        syncers=tuple(f"syncer-{number + 1}" for number in range(random.choice((1, 2, 2, 3)))),
        mergers=tuple(f"merger-{number + 1}" for number in range(mergers)),
        merge_seconds=random.uniform(0.02, 0.3),
        hard_seconds=30.0 + merges * _seconds_a_merge(run, learners),
        merge_every_seconds=max(_seconds_a_merge(run, learners), _seconds_a_quorum(run, learners)),
    )


def _seconds_a_merge(run: Run, learners: tuple[LearnerCase, ...]) -> float:
    """About how long one merge follows another: the pace, or what one round takes, overlapped."""
    steps = [learner.step_seconds for learner in learners]
    step_seconds = quantile(steps, run.window.pace_quantile)
    round_seconds = step_seconds + 2 * learners[0].transfer_seconds
    return max(step_seconds * run.inner_steps / run.fragments, round_seconds / run.fragments)


def _seconds_a_quorum(run: Run, learners: tuple[LearnerCase, ...]) -> float:
    """About how long it takes until K learners have answered: with few fast ones it sets the pace.

    Rounds overlap by as many as are configured; where that is decided on the way, by none.
    """
    steps = sorted(learner.step_seconds for learner in learners)
    overlap = 1 if run.window.overlap == "auto" else min(run.window.overlap, run.fragments)
    return (steps[run.quorum - 1] + 2 * learners[0].transfer_seconds) / overlap


def _draw_run_and_learners(
    random: Random, merges: int, keep_merges: int | None
) -> tuple[Run, tuple[LearnerCase, ...]]:
    """A run that ends when it is asked to, or by itself a while after so many merges."""
    run = _draw_run(random, keep_merges)
    learners = _draw_learners(random, run)
    tokens_per_second = sum(learner.tokens / learner.step_seconds for learner in learners)
    tokens = merges * _seconds_a_merge(run, learners) * tokens_per_second
    end = random.choice(
        (
            {},
            {},
            {"steps": random.randint(merges, merges + merges // 4)},
            {"tokens": round(tokens * random.uniform(2.0, 5.0))},
        )
    )
    return run.model_copy(update={"end": run.end.model_copy(update=end)}), learners


def _draw_run(random: Random, keep_merges: int | None) -> Run:
    fragments = random.choice((1, 2, 3, 4, 6))
    learners_min = random.choice((1, 2, 4))
    settings: dict[str, Any] = {
        "name": RUN,
        "regions": ("home", "away", "far")[: random.choice((1, 1, 2, 3))],
        "fragments": fragments,
        "inner_steps": max(1, round(fragments * random.choice((0.5, 0.5, 1.0, 1.5)))),
        "quorum": random.choice((1, 1, 2, 3)),
        "learners_min": learners_min,
        "snapshot_merges": random.choice((None, 5, 20)),
        "window": {
            "overlap": random.choice(("auto", "auto", 1, 2)),
            "gamma": random.choice((0.8, 0.8, 0.0, 1.0)),
            "pace_quantile": random.choice((0.5, 0.5, 0.0)),
        },
        "merge": {
            "rule": random.choice(("radial", "radial", "mean")),
            "norm_clip": random.choice((2.0, 2.0, "none")),
            "staleness_versions_max": random.choice((0, 1, 1, 2)),
            "tokens_per_step_max": 10_000,
        },
        "outer": {"lr": 0.7, "momentum": random.choice((0.0, 0.5, 0.9))},
        "adoption": random.choice(({}, {}, {"alpha": 0.25}, {"carry": True})),
        "codecs": {"delta": random.choice(("bf16", "fp32"))},
        "times": {
            "takeover_seconds": 3.0,
            "heartbeat_seconds": 1.0,
            "lost_seconds": 8.0,
            "orphan_seconds_max": random.choice((12.0, 60.0)),
            "fetch_seconds_max": 2.0,
        },
        "training": {"checkpoint_steps": random.choice((8, 30, 100))},
        "retention": {"keep_merges": keep_merges},
    }
    return Run.model_validate(settings)


def _draw_learners(random: Random, run: Run) -> tuple[LearnerCase, ...]:
    count = random.choice((4, 4, 4, 5, 5, 6, 7, 8, 10, 12))
    transfer_seconds = random.choice((0.1, 0.3, 1.0))
    slow = random.choice((0, 1, count // 2, count // 2, count - 1))
    return tuple(
        LearnerCase(
            id=f"l{number}" if number < 10 else f"m{number - 10}",
            region=random.choice(run.regions),
            step_seconds=random.uniform(0.9, 1.1) * (random.choice((3, 8)) if number < slow else 1),
            transfer_seconds=transfer_seconds * random.uniform(0.7, 1.5),
            tokens=random.choice((1, 3, 10)),
        )
        for number in range(count)
    )


def _layout(fragments: int) -> Layout:
    """Two small tensors a fragment; learners keep one of all of them coarsely."""
    tensors = tuple(
        Tensor(
            name=f"part{fragment}.{kind}",
            shape=(3, 4) if kind == "weight" else (5,),
            dtype="bfloat16" if kind == "bias" and fragment == 1 else "float32",
            fragment=fragment,
            rule="radial" if kind == "weight" else "mean",
        )
        for fragment in range(fragments)
        for kind in ("bias", "weight")
    )
    return Layout(fragments=fragments, tensors=tensors)


def _put_fragment(store: WorldStore, layout: Layout, fragment: int, seed: int) -> Manifest:
    draw = np.random.default_rng((seed, fragment))
    arrays = {
        tensor.name: draw.standard_normal(tensor.shape, np.float32)
        for tensor in layout.of(fragment)
    }
    blob = encode_tensors(arrays, "fp32")
    store.put(global_key(RUN, fragment, 0, blob.manifest), blob.parts)
    return blob.manifest
