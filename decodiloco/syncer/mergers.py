"""Merges given away, over the wire: a leader asks mergers, and waits. Thin shell of an errand.

A merger is known by its heartbeat. It is asked the same again and again until it has done it; one
that falls silent, or fails, is passed over for another, and where none is left the merge is the
syncer's own. Nothing of this is on the tape: who merged makes no difference to a bit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from decodiloco.config import Times
from decodiloco.merge.order import MergeOrder
from decodiloco.merger.orders import Failed, Result
from decodiloco.syncer.errand import AskAgain, Errand
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.telemetry import log
from streams.calls import CALL_BYTES_MAX, Calls
from streams.errors import Trouble


class Mergers:
    """The mergers of a run as its leader sees them."""

    def __init__(
        self, calls: Calls, hearts: Heartbeats, times: Times, clock: Callable[[], float]
    ) -> None:
        self._calls = calls
        self._hearts = hearts
        self._times = times
        self._clock = clock
        self._burden: Counter[str] = Counter()

    async def carried_out(self, order: MergeOrder) -> Result | None:
        """What a merger made of it; None where none does: then it is ours to do."""
        if not self._there():
            return None
        errand = Errand(order, self._burden, self._times.takeover_seconds)
        if errand.is_too_long:
            log("syncer").warning(
                "too long an order for a merger; merging here",
                round=order.round,
                bytes=len(errand.question),
                bytes_max=CALL_BYTES_MAX,
            )
            return None
        try:
            while name := errand.turn(self._there(), self._clock()):
                result = await self._asked_for(name, errand)
                if result is not None:
                    return result
        finally:
            errand.end()
        if errand.tried:
            log("syncer").warning(
                "no merger does it; merging here", round=order.round, asked=sorted(errand.tried)
            )
        return None

    def _there(self) -> set[str]:
        """Who was heard of late."""
        return self._hearts.names("merger", self._times.takeover_seconds)

    async def _asked_for(self, name: str, errand: Errand) -> Result | None:
        """Asks one merger until it has done it; None when it will not."""
        while True:
            try:
                payload = await self._calls.call(name, errand.question)
                came = errand.told(payload, self._clock())
            except Trouble as error:  # of asking: the merge can still be made here
                came = Failed(str(error))
            if isinstance(came, AskAgain):
                await asyncio.sleep(came.after_seconds)
            elif isinstance(came, Failed):
                log("syncer").warning(
                    "a merger does not merge", merger=name, round=errand.order.round, why=came.why
                )
                return None
            else:
                return came
