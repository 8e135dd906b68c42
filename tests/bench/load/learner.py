"""A real learner with a real session, stepping as fast as it is told; and how its memory goes.

learner CONFIG NAME STEP_SECONDS WARM_STEPS STEPS: one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Event

import psutil
import torch

import decodiloco
from tests.bench.load.cluster import small_model

TOKENS = 100
QUARTERS = 4


def main() -> None:
    """Joins, steps so often, and leaves."""
    path, name, step_seconds, warm_steps, steps = sys.argv[1:]
    torch.set_num_threads(1)
    nap, own, sizes = Event(), psutil.Process(), []
    model = small_model()
    inner = torch.optim.AdamW(model.parameters(), lr=1e-6)
    with decodiloco.join(Path(path), name, model, inner) as session:
        for step in range(1, int(warm_steps) + int(steps) + 1):
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            nap.wait(float(step_seconds))
            inner.step()
            session.step(tokens=TOKENS, loss=1.0)
            counted = step - int(warm_steps)
            if counted > 0 and counted % (int(steps) // QUARTERS) == 0:
                sizes.append(own.memory_info().rss)
        merges = session.clock.step
    print(json.dumps({"sizes": sizes, "merges": merges}))


if __name__ == "__main__":
    main()
