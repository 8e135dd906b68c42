"""A merge given away: which merger is asked, how long, and what its answer is good for. Pure.

Told who is there and what was answered, it says what is next; whoever carries it asks and waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from blake3 import blake3

from decodiloco.merge.order import MergeOrder
from decodiloco.merger.orders import (
    Answer,
    Done,
    Failed,
    Result,
    Working,
    decode_answer,
    encode_order,
    fault_of,
)
from decodiloco.times import MERGER_ASK_SECONDS, MERGER_ASK_SECONDS_MAX
from streams.calls import CALL_BYTES_MAX
from streams.errors import Unreadable

UNANSWERED_MAX = 2  # a leader that was held up itself has asked too seldom to know


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The same is to be asked of the same merger after a while."""

    after_seconds: float


class Errand:
    """One order, asked of one merger after another, of each until it has done it or will not.

    `burden` counts for how many errands of this leader each merger is asked just now; moments are
    seconds on one clock, whose beginning is anybody's.
    """

    def __init__(self, order: MergeOrder, burden: Counter[str], takeover_seconds: float) -> None:
        self.order = order
        self.question = encode_order(order)
        self.tried: list[str] = []
        self._burden = burden
        self._takeover_seconds = takeover_seconds
        self._asked = ""
        self._heard_at = 0.0
        self._unanswered = 0
        self._pause_seconds = 0.0

    @property
    def is_too_long(self) -> bool:
        """Whether no merger can be asked this."""
        return len(self.question) > CALL_BYTES_MAX

    def turn(self, there: Collection[str], now: float) -> str | None:
        """Who of those that are there is asked from now on: who was not yet, and has least to do.

        Of several such the order itself draws one, so that a new leader asks the same one, who may
        have done it by then. None where nobody is left.
        """
        self.end()
        left = [name for name in there if name not in self.tried]
        if not left:
            return None
        name = min(left, key=lambda one: (self._burden[one], self._lot(one)))
        self.tried.append(name)
        self._burden[name] += 1
        self._asked, self._heard_at, self._unanswered = name, now, 0
        self._pause_seconds = float(MERGER_ASK_SECONDS)
        return name

    def told(self, payload: bytes | None, now: float) -> Result | AskAgain | Failed:
        """What is next after an answer of the one that is asked; None when none came in time."""
        answer = None if payload is None else self._read(payload)
        if isinstance(answer, Done):
            return answer.result
        if isinstance(answer, Failed):
            return answer
        if isinstance(answer, Working):
            self._heard_at, self._unanswered = now, 0
        else:
            self._unanswered += 1
            silent_seconds = now - self._heard_at
            if silent_seconds > self._takeover_seconds and self._unanswered > UNANSWERED_MAX:
                return Failed(f"no answer for {silent_seconds:.1f} s")
        pause_seconds = self._pause_seconds
        self._pause_seconds = min(2 * pause_seconds, float(MERGER_ASK_SECONDS_MAX))
        return AskAgain(pause_seconds)

    def end(self) -> None:
        """Nobody is asked any more."""
        if self._asked:
            self._burden[self._asked] -= 1
            self._asked = ""

    def _lot(self, name: str) -> bytes:
        return blake3(name.encode() + b" " + self.question).digest()

    def _read(self, payload: bytes) -> Answer:
        """An answer that may be taken at its word: one that cannot be right is a failure."""
        try:
            answer = decode_answer(payload)
            if isinstance(answer, Done) and (fault := fault_of(self.order, answer.result)):
                return Failed(f"its answer cannot be right: {fault}")
        except Unreadable as error:
            return Failed(str(error))
        return answer
