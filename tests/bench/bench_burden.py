"""What a session costs the thread that trains: 25 M parameters, 24 fragments, H = 24, bf16.

Blocks of steps with and without `session.step` take turns in one process, on one torch thread;
NATS server and syncer are processes of their own. Time is told twice: by the wall, which whatever
else runs on the machine disturbs, and by the thread's own processor time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
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


def figures(quick: bool) -> Iterator[Figure]:
    """Median step by the wall and by the thread's clock, and the longest step; on over off."""
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
                taken = _taken(session, gpt, optimizer, seconds)
                merges = session.clock.step
    (on_wall, off_wall), (on_own, off_own) = taken
    load = f"load {psutil.getloadavg()[0]:.0f}"
    steps = f"{len(on_wall)} steps on, {len(off_wall)} off, {merges} merges"
    yield _ratio("burden: median step, session on / off", on_wall, off_wall, f"{steps}; {load}")
    yield _ratio("burden: the same, training thread's own time", on_own, off_own, steps)
    yield Figure(
        "burden: longest step on / median off, thread's own time",
        max(on_own) / median(off_own),
        "x",
        at_most(1.5),
        f"longest off {max(off_own) / median(off_own):.2f} x; by the wall on "
        f"{max(on_wall) / median(off_wall):.2f} x, off {max(off_wall) / median(off_wall):.2f} x",
    )


def _taken(
    session: Session, gpt: Gpt, optimizer: torch.optim.Optimizer, seconds: float
) -> tuple[tuple[list[float], list[float]], tuple[list[float], list[float]]]:
    """Seconds of each step, on and off: by the wall, and by the thread's own clock."""
    wall: tuple[list[float], list[float]] = [], []
    own: tuple[list[float], list[float]] = [], []
    draw = torch.Generator().manual_seed(0)
    windows = torch.randint(0, 256, (SEQUENCES, MODEL["context"] + 1), generator=draw)
    warm = WARM_STEPS
    deadline = time.monotonic() + seconds
    block = 0
    while time.monotonic() < deadline or block % 2:
        side = block % 2
        for _ in range(BLOCK_STEPS + (warm if block < 2 else 0)):
            begun, own_begun = time.perf_counter(), time.thread_time()
            loss = train_one_step(gpt, optimizer, windows, 1.0)
            if side == 0:
                session.step(tokens=windows[:, 1:].numel(), loss=loss)
            wall[side].append(time.perf_counter() - begun)
            own[side].append(time.thread_time() - own_begun)
        block += 1
    return (wall[0][warm:], wall[1][warm:]), (own[0][warm:], own[1][warm:])


def _ratio(name: str, on: list[float], off: list[float], more: str) -> Figure:
    told = f"{median(on) * 1e3:.0f} against {median(off) * 1e3:.0f} ms; {more}"
    return Figure(name, median(on) / median(off), "x", at_most(1.02), told)
