"""Merges given away: which merger is asked, how long, and what its answer is good for.

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
from decodiloco.merger.orders import (
    Done,
    Failed,
    Result,
    Working,
    decode_answer,
    encode_order,
    fault_of,
)
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.telemetry import log
from decodiloco.times import MERGER_ASK_SECONDS, MERGER_ASK_SECONDS_MAX
from streams.calls import CALL_BYTES_MAX, Calls
from streams.errors import PermissionDenied, Unreadable

UNANSWERED_MAX = 2  # a leader that was held up itself has asked too seldom to know


class Mergers:
    """The mergers of a run as its leader sees them."""

    def __init__(
        self, calls: Calls, hearts: Heartbeats, times: Times, clock: Callable[[], float]
    ) -> None:
        self._calls = calls
        self._hearts = hearts
        self._times = times
        self._clock = clock
        self._asked: Counter[str] = Counter()

    async def carried_out(self, order: MergeOrder) -> Result | None:
        """What a merger made of it; None where none does: then it is ours to do."""
        tried: set[str] = set()
        question = encode_order(order) if self._there(tried) else b""
        if len(question) > CALL_BYTES_MAX:
            log("syncer").warning(
                "too long an order for a merger; merging here",
                round=order.round,
                bytes=len(question),
                bytes_max=CALL_BYTES_MAX,
            )
            return None
        while there := self._there(tried):
            name = min(there, key=lambda one: (self._asked[one], one))
            tried.add(name)
            self._asked[name] += 1
            try:
                result = await self._asked_for(name, order, question)
            finally:
                self._asked[name] -= 1
            if result is not None:
                return result
        if tried:
            log("syncer").warning(
                "no merger does it; merging here", round=order.round, asked=sorted(tried)
            )
        return None

    def _there(self, tried: set[str]) -> set[str]:
        """Who was heard of late, and not tried."""
        return self._hearts.names("merger", self._times.takeover_seconds) - tried

    async def _asked_for(self, name: str, order: MergeOrder, question: bytes) -> Result | None:
        """Asks one merger until it has done it; None when it will not."""
        heard, unanswered, pause_seconds = self._clock(), 0, float(MERGER_ASK_SECONDS)
        while True:
            try:
                payload = await self._calls.call(name, question)
                answer = None if payload is None else decode_answer(payload)
                if isinstance(answer, Done) and (fault := fault_of(order, answer.result)):
                    answer = Failed(f"its answer cannot be right: {fault}")
            except (Unreadable, PermissionDenied) as error:
                answer = Failed(str(error))
            if isinstance(answer, Done):
                return answer.result
            if isinstance(answer, Working):
                heard, unanswered = self._clock(), 0
            elif answer is None:
                unanswered += 1
                silent_seconds = self._clock() - heard
                if silent_seconds > self._times.takeover_seconds and unanswered > UNANSWERED_MAX:
                    answer = Failed(f"no answer for {silent_seconds:.1f} s")
            if isinstance(answer, Failed):
                log("syncer").warning(
                    "a merger does not merge", merger=name, round=order.round, why=answer.why
                )
                return None
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MERGER_ASK_SECONDS_MAX)
