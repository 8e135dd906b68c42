"""What a syncer asks a merger for, and what it is answered, as bytes and back. Pure.

An order is all that a merge depends on, so a merger knows neither tape nor opening. The same order
is the same bytes: it may be asked for again and again until its answer comes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from decodiloco.merge.order import Abandoned, MergeOrder, StoredMerge
from decodiloco.syncer.state import RULES
from streams.calls import CALL_BYTES_MAX
from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.printing import first_fault, printable

SCHEMA = 1
DEPTH_MAX = 8
WHY_LENGTH_MAX = 500

Result = StoredMerge | Abandoned


@dataclass(frozen=True, slots=True)
class Working:
    """The merge is under way: ask again."""

    kind: Literal["working"] = "working"


@dataclass(frozen=True, slots=True)
class Failed:
    """This merger does not carry it out, and why."""

    why: str
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Done:
    """The merge is carried out, and its bytes are stored."""

    merged: StoredMerge | None
    abandoned: Abandoned | None
    kind: Literal["done"] = "done"

    @classmethod
    def of(cls, result: Result) -> Done:
        """The answer that gives this result."""
        if isinstance(result, Abandoned):
            return cls(None, result)
        return cls(result, None)

    @property
    def result(self) -> Result:
        """What came of it."""
        result = self.merged or self.abandoned
        if result is None:
            raise Unreadable("an answer that is done, and has no result")
        return result


Answer = Working | Failed | Done

_ORDER = TypeAdapter(MergeOrder)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])


def encode_order(order: MergeOrder) -> bytes:
    """The order as it is asked; longer than CALL_BYTES_MAX it cannot be."""
    return pack([SCHEMA, RULES, asdict(order)])


def decode_order(payload: bytes) -> MergeOrder:
    """The order in these bytes. Raises Unreadable, saying what a merger of this build lacks."""
    schema, rules, plain = _parts(payload, 3)
    if (schema, rules) != (SCHEMA, RULES):
        raise Unreadable(
            f"an order of schema {_shown(schema)} and rules {_shown(rules)}; this merger follows "
            f"{SCHEMA} and {RULES}: run the decodiloco of the syncer here"
        )
    try:
        return _ORDER.validate_python(plain)
    except ValidationError as error:
        raise Unreadable(f"no order: {first_fault(error)}") from None


def encode_answer(answer: Answer) -> bytes:
    """The answer as it is sent."""
    if isinstance(answer, Failed):
        answer = Failed(printable(answer.why)[:WHY_LENGTH_MAX])
    return pack([SCHEMA, asdict(answer)])


def decode_answer(payload: bytes) -> Answer:
    """The answer in these bytes. Raises Unreadable, whatever they are."""
    schema, plain = _parts(payload, 2)
    if schema != SCHEMA:
        raise Unreadable(f"an answer of schema {_shown(schema)}; this syncer reads {SCHEMA}")
    try:
        return _ANSWER.validate_python(plain)
    except ValidationError as error:
        raise Unreadable(f"no answer: {first_fault(error)}") from None


def fault_of(order: MergeOrder, result: Result) -> str | None:
    """Why this can be no result of that order, or None. Bytes are not looked at.

    What passes can be folded; whether it is right is proved from the stored bytes.
    """
    merged = result.contributions if isinstance(result, StoredMerge) else ()
    told = sorted([*merged, *(one.position for one in result.left_out)])
    asked = sorted(one.position for one in order.contributions)
    if isinstance(result, Abandoned):
        if not set(told) <= set(asked) or len(set(told)) != len(told):
            return "it leaves out what was not in the order"
        if len(asked) - len(told) >= order.quorum:
            return "it was abandoned, and a quorum is left"
        return None
    if told != asked:
        return "its contributions and what it leaves out are not those of the order"
    if len(merged) < order.quorum:
        return f"it merged {len(merged)}, and {order.quorum} are a quorum"
    if not set(result.doubted) <= set(merged):
        return "it doubts what is not in it"
    if not math.isfinite(result.outer_gradient_norm):
        return "its outer gradient is not finite"
    return None


def _parts(payload: bytes, count: int) -> tuple[object, ...]:
    value = unpack(payload, CALL_BYTES_MAX, DEPTH_MAX)
    if not isinstance(value, tuple) or len(value) != count:
        raise Unreadable(f"an array of {count} parts is wanted")
    return value


def _shown(value: object) -> str:
    return printable(str(value)[:20])
