"""The opening of a run as one stored blob: config, layout, and the first fragments' manifests."""

from __future__ import annotations

from dataclasses import dataclass

from blake3 import blake3
from pydantic import ValidationError

from decodiloco.config import Run
from decodiloco.errors import BlobCorrupt
from decodiloco.fragments.layout import Layout
from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.manifest import Manifest

OPENING_BYTES_MAX = 64 * 1024 * 1024
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Opening:
    """What every machine, live or in replay, must know before the first fact after RunOpened.

    `fragments` holds one manifest a fragment: the parameters of version 0.
    """

    run: Run
    layout: Layout
    fragments: tuple[Manifest, ...]


def encode_opening(opening: Opening) -> tuple[bytes, Manifest]:
    """The blob and its manifest (digest: blake3 of all bytes)."""
    payload = pack(
        [
            SCHEMA,
            opening.run.model_dump(mode="json"),
            opening.layout.as_plain(),
            [manifest.model_dump() for manifest in opening.fragments],
        ]
    )
    assert len(payload) <= OPENING_BYTES_MAX
    digest = blake3(payload).digest()
    return payload, Manifest(bytes=len(payload), digest=digest, codec="msgpack")


def decode_opening(payload: bytes, manifest: Manifest) -> Opening:
    """The opening in these bytes; raises BlobCorrupt when they are not what was named."""
    if len(payload) != manifest.bytes or blake3(payload).digest() != manifest.digest:
        raise BlobCorrupt("the opening's bytes do not match the digest in RunOpened")
    try:
        schema, run, layout, fragments = unpack(payload, OPENING_BYTES_MAX)
        if schema != SCHEMA:
            raise BlobCorrupt(f"opening of schema {schema}; this build reads {SCHEMA}")
        return Opening(
            Run.model_validate(run),
            Layout.model_validate(layout),
            tuple(Manifest.model_validate(fragment) for fragment in fragments),
        )
    except (Unreadable, ValidationError, ValueError, TypeError) as error:
        raise BlobCorrupt(f"the opening cannot be read: {error}") from None
