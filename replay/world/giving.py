"""A merge that a leader of the world gives away, with moments in place of waiting.

Whom to ask, how long and what an answer is good for is the production errand's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from decodiloco.merge.order import MergeOrder
from decodiloco.merger.orders import Done, Failed, Result, decode_answer
from decodiloco.syncer.errand import AskAgain, Errand

if TYPE_CHECKING:
    from replay.world.syncer import SyncerProcess


class Giving:
    """One order on its way; `made` is told the result, or None where the merge is our own."""

    def __init__(
        self,
        syncer: SyncerProcess,
        order: MergeOrder,
        burden: Counter[str],
        made: Callable[[Result | None], None],
    ) -> None:
        self._syncer, self._world = syncer, syncer.world
        self._errand = Errand(order, burden, syncer.times.takeover_seconds)
        self._made = made
        self._is_over = False
        assert not self._errand.is_too_long

    def turn(self) -> None:
        """Asks the first, or the next one."""
        name = self._errand.turn(self._syncer.mergers(), self._syncer.heap.now)
        if name is not None:
            self._ask(name)
            return
        if self._errand.tried:
            self._world.hit("a leader merges what a merger did not")
        self._made(None)

    def end(self) -> None:
        """Nothing is asked any more, and no answer is waited for."""
        self._is_over = True
        self._errand.end()

    def _ask(self, name: str) -> None:
        if not self._is_over:
            question = self._errand.question
            answered = partial(self._answered, name)
            self._world.calls.call(self._syncer, name, question, answered, self._too_late)

    def _answered(self, name: str, payload: bytes | None) -> None:
        if self._is_over:
            self._too_late(payload)
            return
        came = self._errand.told(payload, self._syncer.heap.now)
        if isinstance(came, AskAgain):
            self._syncer.later(came.after_seconds, partial(self._ask, name))
        elif isinstance(came, Failed):
            self._world.hit("a merger is given up" if payload is None else "a merger fails")
            self.turn()
        else:
            self.end()
            self._made(came)

    def _too_late(self, payload: bytes | None) -> None:
        """An answer that nobody waits for: what it gives may be merged already, and never is."""
        if payload is None or not isinstance(decode_answer(payload), Done):
            return
        order = self._errand.order
        if self._syncer.state.versions[order.fragment] >= order.version:
            self._world.hit("an answer comes after the round is merged")
