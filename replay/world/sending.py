"""A batch on its way to the tape, until it is known what became of it, and that is read back.

The same rule as `streams.tape.append_surely`, with moments in place of waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streams.envelope import Envelope
from streams.errors import Failure, Trouble
from streams.tape import Outcome, Refused, Stored

if TYPE_CHECKING:
    from replay.world.syncer import SyncerProcess

PAUSE_SECONDS_MAX = 2.0


class Sending:
    """One batch in flight; `settled` is told its outcome once the record there is folded."""

    def __init__(
        self,
        syncer: SyncerProcess,
        batch: Sequence[Envelope],
        settled: Callable[[Stored | Refused], None],
        patience_seconds: float,
    ) -> None:
        self._syncer, self._world = syncer, syncer.world
        self._batch = batch
        self._settled = settled
        self._deadline = syncer.heap.now + patience_seconds
        self._patience_seconds = patience_seconds
        self._pause_seconds = 0.05

    def send(self) -> None:
        """Sends the batch, again and again until its end is known."""
        tape, batch = self._world.tape, self._batch
        tape.attempt(batch)
        self._world.network.call(
            self._syncer, "nats", "append", lambda: tape.append(batch), self._answered
        )

    def _answered(self, outcome: Outcome | Failure) -> None:
        self._world.point(self._syncer, "append answered")
        if isinstance(outcome, Stored):
            self._end(outcome)
            return
        if isinstance(outcome, Failure):
            self._world.hit("an append has no answer")
        after = self._batch[0].position - 1
        self._world.network.call(
            self._syncer,
            "nats",
            "read",
            lambda: self._world.tape.records[after : after + 1],
            self._looked,
        )

    def _looked(self, there: list[Envelope] | Failure) -> None:
        if isinstance(there, list) and there:
            if there[0].digest == self._batch[0].digest:
                self._world.hit("an append without an answer was stored")
                self._end(Stored(self._batch[-1].position))
            else:
                self._world.hit("an append is refused")
                self._end(Refused(f"position {there[0].position} holds another's record"))
            return
        if self._syncer.heap.now > self._deadline:
            raise Trouble(f"an append is unsettled after {self._patience_seconds:.0f} s")
        self._syncer.later(self._pause_seconds, self.send)
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)

    def _end(self, outcome: Stored | Refused) -> None:
        position = self._batch[0].position
        if isinstance(outcome, Stored):
            self._world.tape.acknowledge(self._batch)
            position = outcome.last
        self._syncer.when_folded(position, lambda: self._settled(outcome))
