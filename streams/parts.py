"""What facts are made of: checked kinds of values, and the parts that several facts share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

CURSOR_BYTES_MAX = 1024
FRAGMENTS_MAX = 1024
RESIDUALS_MAX = 64  # in one delta: usually one
KEPT_MAX = 1700  # positions: all that one fact can hold

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,47}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
Integer = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]  # said by somebody, checked by a gate
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Cursor = Annotated[bytes, Field(max_length=CURSOR_BYTES_MAX)]


class Part(BaseModel):
    """What all facts and their parts have in common: frozen, strict, and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Adoption(Part):
    """A merged version put into the live parameters, at this step of the learner."""

    fragment: Count
    version: Count
    learner_step: Count
    tokens_trained: Count
    fetch_seconds: Seconds


class LeftOut(Part):
    """An offer whose bytes did not pass the merge, by its position, and why."""

    position: Count
    reason: Reason


class PassedOver(Part):
    """A checkpoint that a joining learner would have taken moments from, and why it did not."""

    learner: Name
    learner_step: Count
    reason: Reason


class Moments(Part):
    """Where a joining learner took its optimizer's moments from, and their age in run steps.

    `passed_over` are better checkpoints that could not be used, best first.
    """

    source: Literal["own", "borrowed", "zero"]
    age_steps: Count
    passed_over: Annotated[tuple[PassedOver, ...], Field(max_length=8)] = ()
