"""Blobs on their way to the store, one after another, by whoever merged or keeps a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from decodiloco.store.blobs import Body, Part
from replay.world.process import Process
from streams.errors import Failure

if TYPE_CHECKING:
    from replay.world.world import World

Blobs = Sequence[tuple[str, Sequence[Part]]]


class Storing:
    """One process's blobs; `stored` is told when all of them are durable.

    `failed` is told what the store answered instead, and `is_wanted` asked before each blob.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        stored: Callable[[], None],
        failed: Callable[[Failure], None],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._world, self._process = world, process
        self._stored, self._failed, self._is_wanted = stored, failed, is_wanted

    def put(self, blobs: Blobs) -> None:
        """Stores one blob after another; it may be killed between two of them."""
        if not self._is_wanted():
            return
        if not blobs:
            self._stored()
            return
        (key, parts), rest = blobs[0], blobs[1:]

        def answered(result: Failure | None) -> None:
            if isinstance(result, Failure):
                self._failed(result)
                return
            self._world.point(self._process, f"{key.split('/')[1]} stored")
            self.put(rest)

        self._world.network.call(
            self._process, "store", "put", lambda: self._put(key, parts), answered
        )

    def _put(self, key: str, parts: Sequence[Part]) -> None:
        """What is there under this key already, whoever stored it, must be the same."""
        world = self._world
        held = world.store.blobs.get(key)
        if held is not None:
            told = f"{self._process.machine} stores other bytes than those that are under {key}"
            is_same = held == b"".join(Body(parts))
            world.invariants.same_bytes.hold(is_same, told, len(world.tape.records))
        world.store.put(key, parts)
