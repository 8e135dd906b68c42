"""A real learner with a real session, stepping as fast as it is told; and how its memory goes.

learner CONFIG NAME STEP_SECONDS WARM_SECONDS SECONDS: one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from threading import Event

import psutil
import torch
from torch import nn

import decodiloco
from decodiloco.learner.session import Session
from tests.bench.load.cluster import small_model

TOKENS = 100
QUARTERS = 4


def main() -> None:
    """Joins, steps for so long, and leaves."""
    path, name, step_seconds, warm_seconds, seconds = sys.argv[1:]
    torch.set_num_threads(1)
    model, own, sizes = small_model(), psutil.Process(), []
    inner = torch.optim.AdamW(model.parameters(), lr=1e-6)
    with decodiloco.join(Path(path), name, model, inner) as session:
        steps = _step(session, model, inner, float(step_seconds), float(warm_seconds))
        for _ in range(QUARTERS):
            share = float(seconds) / QUARTERS
            steps += _step(session, model, inner, float(step_seconds), share)
            sizes.append(own.memory_info().rss)
        merges = session.clock.step
    print(json.dumps({"sizes": sizes, "steps": steps, "merges": merges}))


def _step(
    session: Session,
    model: nn.Module,
    inner: torch.optim.Optimizer,
    step_seconds: float,
    seconds: float,
) -> int:
    """How many steps were made in that time."""
    nap, steps, end = Event(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        nap.wait(step_seconds)
        inner.step()
        session.step(tokens=TOKENS, loss=1.0)
        steps += 1
    return steps


if __name__ == "__main__":
    main()
