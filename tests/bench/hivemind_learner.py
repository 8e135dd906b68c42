"""A hivemind peer whose steps are naps: run by the Python of hivemind's own environment.

hivemind_learner.py NAME FIRST STEP_SECONDS FOLDER waits|delays. Knows nothing of this project: for
each inner step it appends to FOLDER/NAME.steps its monotonic time, the rounds averaged so far and
the seconds that training stood still for averaging; it runs until it is killed with what it forks.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path
from threading import Event

import torch
from hivemind import DHT, DecentralizedAverager
from hivemind.averaging.allreduce import AllreduceException
from hivemind.averaging.control import StepControl
from hivemind.p2p import P2P
from torch import nn

STEPS_PER_ROUND = 12
WIDTH = 1000  # ten square layers: ten million parameters
LOOPBACK = ["/ip4/127.0.0.1/tcp/0"]
ROUND_SECONDS_MAX = 6.0  # over min_matchmaking_time, 5 by default, as it must be; by default None


class Waiting:
    """Averages the parameters in place and waits for it, as `DecentralizedAverager.step` does."""

    def __init__(self, table: DHT, parameters: list[torch.Tensor]) -> None:
        self._averager = _averager_of(parameters, table)

    def is_averaged(self) -> bool:
        """Whether a group was found in time."""
        return _is_averaged(self._averager.step(timeout=ROUND_SECONDS_MAX, wait=False))


class Delayed:
    """Averages copies while training goes on, by the delta rule of `TrainingStateAverager`.

    Parameters get what the average has changed when the next round begins: x += mean - copy.
    """

    def __init__(self, table: DHT, parameters: list[torch.Tensor]) -> None:
        self._parameters = parameters
        self._averager = _averager_of([each.clone() for each in parameters], table)
        self._copies = [each.clone() for each in parameters]
        self._pending: StepControl | None = None

    def is_averaged(self) -> bool:
        """Whether a round that was begun before has been taken in; begins the next."""
        taken = self._pending is not None and _is_averaged(self._pending)
        with self._averager.get_tensors() as averaged:
            for live, mean, copy in zip(self._parameters, averaged, self._copies, strict=True):
                if taken:
                    live.add_(torch.sub(mean, copy, out=copy))
                copy.copy_(live)
                mean.copy_(live)
        self._pending = self._averager.step(timeout=ROUND_SECONDS_MAX, wait=False)
        return taken


def main() -> None:
    """Finds the peers by way of the first and steps for ever."""
    name, first, step_seconds, folder, way = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    P2P._UNIX_SOCKET_PREFIX = f"/unix{folder}/"  # a killed peer's sockets would stay in /tmp
    nap = Event()
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(10)))
    inner = torch.optim.SGD(model.parameters(), lr=1e-6)
    table = _table_of(Path(folder) / f"{first}.address", is_first=name == first)
    parameters = [each.data for each in model.parameters()]
    averaging = (Waiting if way == "waits" else Delayed)(table, parameters)
    averaged = 0
    with (Path(folder) / f"{name}.steps").open("a", buffering=1) as told:
        for step in count(1):
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            nap.wait(float(step_seconds))
            inner.step()
            begun = time.monotonic()
            if step % STEPS_PER_ROUND == 0:
                averaged += averaging.is_averaged()
            ended = time.monotonic()
            print(ended, averaged, ended - begun, file=told)


def _table_of(address: Path, is_first: bool) -> DHT:
    """The table of peers: begun by the first, which leaves its address in a file for the others."""
    if is_first:
        table = DHT(host_maddrs=LOOPBACK, start=True)
        written = address.with_suffix(".part")
        written.write_text("\n".join(map(str, table.get_visible_maddrs())))
        written.rename(address)
        return table
    while not address.exists():
        Event().wait(0.05)
    return DHT(address.read_text().split(), host_maddrs=LOOPBACK, start=True)


def _averager_of(tensors: list[torch.Tensor], table: DHT) -> DecentralizedAverager:
    return DecentralizedAverager(tensors, table, start=True, prefix="bench", target_group_size=2)


def _is_averaged(begun: StepControl) -> bool:
    """Waits for a round; false where no group was found in time, and training goes on alone."""
    try:
        return begun.result() is not None
    except AllreduceException as failure:
        print(f"trains on alone: {failure}", file=sys.stderr)
        return False


if __name__ == "__main__":
    main()
