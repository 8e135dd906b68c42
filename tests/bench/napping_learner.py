"""A learner of ours whose steps are naps, the twin of torchft_learner.py.

napping_learner CONFIG NAME STEP_SECONDS FOLDER: appends the monotonic time of every inner step to
FOLDER/NAME.steps, and runs until it is killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event

import torch

import decodiloco
from decodiloco.config import load_config
from decodiloco.training.gpt import build

TOKENS = 16


def main() -> None:
    """Joins the run and steps until it ends."""
    path, name, step_seconds, folder = sys.argv[1:]
    torch.set_num_threads(1)
    nap = Event()
    model = build(load_config(Path(path)).run.model)
    inner = torch.optim.SGD(model.parameters(), lr=1e-6)
    with (
        (Path(folder) / f"{name}.steps").open("a", buffering=1) as told,
        decodiloco.join(path, name, model, inner) as session,
    ):
        while not session.finished:
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            nap.wait(float(step_seconds))
            inner.step()
            session.step(tokens=TOKENS, loss=1.0)
            print(time.monotonic(), session.clock.step, file=told)


if __name__ == "__main__":
    main()
