"""A stored blob, named by what it holds. A manifest never carries a place: keys are computed."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

DIGEST_BYTES = 32

Digest = Annotated[bytes, Field(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class Manifest(BaseModel):
    """Bytes that are durable: how many, their digest (blake3, 32 bytes) and how they are coded."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    bytes: Annotated[int, Field(ge=0, le=2**53)]
    digest: Digest
    codec: Annotated[str, Field(pattern=r"^[a-z0-9]{1,16}$")]
