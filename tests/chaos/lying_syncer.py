"""A syncer whose arithmetic, store or fold goes wrong in silence: `python -m` this, as a process.

    python -m tests.chaos.lying_syncer parameters syncer --config run.toml --id s1

What it says agrees with what it stores: nobody who trusts it can notice. From its third merge on.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from decodiloco import cli
from decodiloco.merge import one_pass
from decodiloco.merge.one_pass import Pass
from decodiloco.store.blobs import Part
from decodiloco.store.local import LocalStore
from decodiloco.syncer import drafting, follower
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State

HONEST_MERGES = 2


def wrong_parameters() -> None:
    """The lowest bit of one parameter of each merge is another one, before anything is stored."""
    honest_run, honest_step = Pass.run, one_pass._step
    merges = itertools.count(1)
    lies: list[bool] = []

    def run(self: Any, *given: Any) -> Any:
        lies[:] = [next(merges) > HONEST_MERGES]
        return honest_run(self, *given)

    def step(parameters: Any, momentum: Any, places: Any, *given: Any) -> None:
        if lies.pop() if lies else False:
            places = (Bent(places[0]), places[1])
        honest_step(parameters, momentum, places, *given)

    Pass.run = run  # type: ignore[method-assign]
    one_pass._step = step


class Bent:
    """A place whose first element is not what was said."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def settle(self, start: int, piece: Any) -> None:
        if start == 0:
            piece.view(np.uint32)[0] ^= np.uint32(1)
        self._place.settle(start, piece)


def wrong_store() -> None:
    """A byte of each merged fragment turns over on its way to the disk."""
    honest = LocalStore.put
    merges = itertools.count(1)

    def put(self: Any, key: str, parts: Sequence[Part]) -> Any:
        if "/global/" in key and next(merges) > HONEST_MERGES:
            last = bytearray(parts[-1])
            last[-1] ^= 1
            parts = [*parts[:-1], bytes(last)]
        return honest(self, key, parts)

    LocalStore.put = put  # type: ignore[method-assign]


def wrong_state() -> None:
    """Its fold is not what the tape says, and it believes in it."""
    honest = state_digest

    def digest(state: State) -> bytes:
        true = honest(state)
        return true if state.step < HONEST_MERGES else bytes([true[0] ^ 1]) + true[1:]

    for module in (drafting, follower):
        module.__dict__["state_digest"] = digest


LIES: dict[str, Callable[[], None]] = {
    "parameters": wrong_parameters,
    "store": wrong_store,
    "state": wrong_state,
}


if __name__ == "__main__":
    LIES[sys.argv.pop(1)]()
    cli.main()
