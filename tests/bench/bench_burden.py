"""What a session costs the thread that trains: 25 M parameters, 24 fragments, H = 24, bf16.

Blocks of steps with and without `session.step` take turns in one process, on one torch thread;
NATS server and syncer are processes of their own. Time is told twice: by the wall, which whatever
else runs on the machine disturbs, and by the thread's own processor time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median

import psutil
import torch

import decodiloco
from decodiloco.learner.session import Session
from decodiloco.training.gpt import Gpt, build
from decodiloco.training.trainer import adamw, train_one_step
from tests.bench.figures import Figure, at_most
from tests.real_cluster import RealCluster

FRAGMENTS = 24
BLOCK_STEPS = 12
WARM_STEPS = 6
MODEL = {"layers": 24, "width": 296, "heads": 8, "context": 32}
SEQUENCES = 4
FULL_SECONDS, QUICK_SECONDS = 150.0, 12.0


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one step: by the wall, of the thread's own, and of `session.step` in it."""

    wall: float
    own: float
    call: float


Clock = Callable[[Step], float]
_wall: Clock = attrgetter("wall")
_own: Clock = attrgetter("own")


def figures(quick: bool) -> Iterator[Figure]:
    """Median step by the wall and by the thread's clock, on over off; the longest call and step."""
    seconds = QUICK_SECONDS if quick else FULL_SECONDS
    with tempfile.TemporaryDirectory() as place:
        settings = {
            "fragments": FRAGMENTS,
            "inner_steps": FRAGMENTS,
            "model": MODEL,
            "training": {},  # a checkpoint of the 200 MB of moments each H steps, as by default
        }
        with RealCluster(Path(place), **settings) as cluster:
            cluster.start("syncer", "syncer")
            run = cluster.config.run
            torch.set_num_threads(1)
            gpt = build(run.model)
            optimizer = adamw(gpt, run.training)
            with decodiloco.join(Path(place) / "run.toml", "a", gpt, optimizer) as session:
                blocks = _taken(session, gpt, optimizer, seconds)
                merges = session.clock.step
    load = f"load {psutil.getloadavg()[0]:.0f}"
    told = f"{len(blocks)} blocks of {BLOCK_STEPS} steps, {merges} merges; {load}"
    yield _ratio("burden: median step, session on / off", blocks, _wall, told)
    yield _ratio("burden: the same, training thread's own time", blocks, _own)
    on, off = _side(blocks, 0), _side(blocks, 1)
    usual = median(step.wall for step in off)
    calls = sorted(step.call for step in on)
    yield Figure(
        "burden: longest call of the session, of a step", calls[-1] / usual, "x", at_most(0.5),
        f"{1e3 * calls[-1]:.0f} ms; in the median {1e3 * median(calls):.1f} ms, "
        f"one in twelve over {1e3 * calls[-len(calls) // 12]:.0f}",
    )  # fmt: skip
    yield Figure(
        "burden: longest step on / median off", max(map(_wall, on)) / usual, "x", at_most(1.5),
        f"longest off {max(map(_wall, off)) / usual:.2f} x",
    )  # fmt: skip


def _taken(
    session: Session, gpt: Gpt, optimizer: torch.optim.Optimizer, seconds: float
) -> list[list[Step]]:
    """Blocks of steps, on and off in turns."""
    draw = torch.Generator().manual_seed(0)
    windows = torch.randint(0, 256, (SEQUENCES, MODEL["context"] + 1), generator=draw)
    for _ in range(WARM_STEPS):
        loss = train_one_step(gpt, optimizer, windows, 1.0)
        session.step(tokens=windows[:, 1:].numel(), loss=loss)
    blocks: list[list[Step]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(blocks) % 2:
        is_on = len(blocks) % 2 == 0
        steps = []
        for _ in range(BLOCK_STEPS):
            begun, own_begun = time.perf_counter(), time.thread_time()
            loss = train_one_step(gpt, optimizer, windows, 1.0)
            trained = time.perf_counter()
            if is_on:
                session.step(tokens=windows[:, 1:].numel(), loss=loss)
            ended = time.perf_counter()
            steps.append(Step(ended - begun, time.thread_time() - own_begun, ended - trained))
        blocks.append(steps)
    return blocks


def _ratio(name: str, blocks: list[list[Step]], clock: Clock, more: str = "") -> Figure:
    """The median over the pairs of blocks: a machine that grows slower does so for both."""
    middles = [median(map(clock, block)) for block in blocks]
    pairs = sorted(on / off for on, off in zip(middles[::2], middles[1::2], strict=True))
    spread = f"pairs {pairs[0]:.2f} to {pairs[-1]:.2f}, " if len(pairs) > 1 else ""
    told = f"{spread}{1e3 * median(middles[::2]):.0f} against {1e3 * median(middles[1::2]):.0f} ms"
    return Figure(name, median(pairs), "x", at_most(1.02), f"{told}; {more}".rstrip("; "))


def _side(blocks: list[list[Step]], first: int) -> list[Step]:
    return [step for block in blocks[first::2] for step in block]
