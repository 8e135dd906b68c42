"""The opening of a run as one stored blob: config, layout, and the first fragments' manifests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3
from pydantic import ValidationError

from decodiloco.config import Run
from decodiloco.config_faults import fault_lines
from decodiloco.errors import BlobCorrupt
from decodiloco.fragments.layout import Layout
from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.events import RunOpened
from streams.manifest import Manifest
from streams.printing import first_fault, printable

OPENING_BYTES_MAX = 64 * 1024 * 1024
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Opening:
    """What every machine, live or in replay, must know before the first fact after RunOpened.

    `fragments` holds one manifest a fragment: the parameters of version 0. `stored` are the
    settings as the opening's blob holds them, in canonical msgpack; empty while there is no blob.
    """

    run: Run
    layout: Layout
    fragments: tuple[Manifest, ...]
    stored: bytes = field(default=b"", compare=False, repr=False)

    @property
    def config_digest(self) -> bytes:
        """What `RunOpened` carries: the digest of the settings as they were stored.

        A build that knows more settings reads an older opening with their defaults, and finds
        the same digest all the same.
        """
        return blake3(self.stored).digest() if self.stored else self.run.digest


def encode_opening(opening: Opening) -> tuple[bytes, Manifest]:
    """The blob and its manifest (digest: blake3 of all bytes)."""
    payload = pack(
        [
            SCHEMA,
            _settings(opening),
            opening.layout.as_plain(),
            [manifest.model_dump() for manifest in opening.fragments],
        ]
    )
    assert len(payload) <= OPENING_BYTES_MAX
    digest = blake3(payload).digest()
    return payload, Manifest(bytes=len(payload), digest=digest, codec="msgpack")


def run_opened(opening: Opening, store_url: str, rules: int) -> RunOpened:
    """The first fact of a run with this opening; `store_url` is without credentials."""
    _, manifest = encode_opening(opening)
    return RunOpened(
        run=opening.run.name,
        config_digest=opening.config_digest,
        layout_digest=opening.layout.digest,
        store=store_url,
        opening=manifest,
        rules=rules,
    )


def decode_opening(payload: bytes, manifest: Manifest) -> Opening:
    """The opening in these bytes; raises BlobCorrupt when they are not what was named."""
    if len(payload) != manifest.bytes or blake3(payload).digest() != manifest.digest:
        raise BlobCorrupt("the opening's bytes do not match the digest in RunOpened")
    try:
        schema, run, layout, fragments = unpack(payload, OPENING_BYTES_MAX)
        if schema != SCHEMA:
            raise BlobCorrupt(
                f"opening of schema {printable(str(schema)[:20])}; this build reads {SCHEMA}"
            )
        opening = Opening(
            _run(run),
            Layout.model_validate(layout),
            tuple(Manifest.model_validate(fragment) for fragment in fragments),
            pack(run),
        )
    except (Unreadable, ValidationError, ValueError, TypeError) as error:
        raise BlobCorrupt(f"the opening cannot be read: {first_fault(error)}") from None
    counts = opening.run.fragments, opening.layout.fragments, len(opening.fragments)
    if len(set(counts)) > 1:
        raise BlobCorrupt(
            "the opening's settings, layout and first manifests are of {}, {} and {} "
            "fragments".format(*counts)
        )
    return opening


def opening_of(opened: RunOpened, payload: bytes) -> Opening:
    """The opening that a run's first fact names, in these bytes.

    Raises BlobCorrupt when it is another one, or of other settings or another layout.
    """
    opening = decode_opening(payload, opened.opening)
    fault = opening_fault(opened, opening)
    if fault is not None:
        raise BlobCorrupt(f"run {opened.run}: {fault}")
    return opening


def opening_fault(opened: RunOpened, opening: Opening) -> str | None:
    """In what a stored opening is not that of a run's first fact; None where it is."""
    for name, said, found in (
        ("run", opened.run, opening.run.name),
        ("config", opened.config_digest.hex()[:16], opening.config_digest.hex()[:16]),
        ("layout", opened.layout_digest.hex()[:16], opening.layout.digest.hex()[:16]),
    ):
        if said != found:
            return f"the stored opening holds {name} {found}, RunOpened says {said}"
    return None


def _settings(opening: Opening) -> Any:
    if opening.stored:
        return unpack(opening.stored, OPENING_BYTES_MAX)
    return opening.run.model_dump(mode="json")


def _run(stored: Any) -> Run:
    """The settings with today's defaults for what is not stored; an unknown one is refused."""
    try:
        return Run.model_validate(stored)
    except ValidationError as error:
        told = "; ".join(fault_lines(error, "run", Run))
        raise BlobCorrupt(
            f"the opening cannot be read: {told} (was it opened by a newer decodiloco?)"
        ) from None
