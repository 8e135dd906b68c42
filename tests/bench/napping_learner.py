"""A learner of ours whose steps are naps, the twin of torchft_learner.py and hivemind_learner.py.

napping_learner CONFIG NAME STEP_SECONDS FOLDER: for each inner step it appends to FOLDER/NAME.steps
its monotonic time, the syncer step that the model holds and the seconds that the session's own call
took, and runs until it is killed.
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
            begun = time.monotonic()
            session.step(tokens=TOKENS, loss=1.0)
            ended = time.monotonic()
            print(ended, session.clock.step, ended - begun, file=told)


if __name__ == "__main__":
    main()
