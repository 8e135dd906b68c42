"""A torchft replica whose steps are naps: run by the Python of torchft's own environment.

torchft_learner.py LIGHTHOUSE NAME STEP_SECONDS FOLDER. Knows nothing of this project: it appends
the monotonic time of every inner step to FOLDER/NAME.steps, and runs until it is killed.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from threading import Event

import torch
from torch import nn
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

STEPS_PER_SYNC = 12
WIDTH = 512  # four square layers: a million parameters
GLOO_TIMEOUT = timedelta(seconds=5)  # survivors of a kill wait for as long; 60 by default
VOTE_TIMEOUT = timedelta(seconds=10)


def main() -> None:
    """Joins the lighthouse and steps for ever."""
    lighthouse, name, step_seconds, folder = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nap = Event()
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)))
    inner = torch.optim.SGD(model.parameters(), lr=1e-6)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    quorum = Manager(
        pg=ProcessGroupGloo(timeout=GLOO_TIMEOUT),
        load_state_dict=lambda held: None,
        state_dict=dict,
        timeout=VOTE_TIMEOUT,
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=name,
        hostname="127.0.0.1",
    )
    with (
        (Path(folder) / f"{name}.steps").open("a", buffering=1) as told,
        DiLoCo(quorum, [model], inner, outer, sync_every=STEPS_PER_SYNC),
    ):
        while True:
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            nap.wait(float(step_seconds))
            inner.step()
            print(time.monotonic(), quorum.num_participants(), file=told)


if __name__ == "__main__":
    main()
