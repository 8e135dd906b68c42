"""How records lie one after another in a file or a blob, and the seal that ends them. Pure.

    begin  = magic, version (2), header length (4), header
    record = payload length (4), payload: the envelope's canonical bytes
    seal   = 0 (4), count (8), digest of the last record (32), blake3 of every byte before (32)

Numbers are big-endian. A length of zero cannot be a record's, so it opens the seal. What a header
says is for the format on top to know: a tape file, or a segment of an archive.
"""

from __future__ import annotations

import struct

from blake3 import blake3

from streams.codec import ENVELOPE_BYTES_MAX

LENGTH = struct.Struct(">I")
COUNT = struct.Struct(">Q")
SEAL_BYTES = LENGTH.size + COUNT.size + 32 + 32


def begin(magic: bytes, version: int, header: bytes) -> bytes:
    """The first bytes, up to the first record."""
    return magic + version.to_bytes(2, "big") + LENGTH.pack(len(header)) + header


def encode_record(payload: bytes) -> bytes:
    """One record with its length before it."""
    assert 0 < len(payload) <= ENVELOPE_BYTES_MAX
    return LENGTH.pack(len(payload)) + payload


def encode_seal(count: int, last_digest: bytes, before: blake3) -> bytes:
    """The last bytes; `before` has hashed every byte before the seal."""
    head = LENGTH.pack(0) + COUNT.pack(count) + last_digest
    hasher = before.copy()
    hasher.update(head)
    return head + bytes(hasher.digest())
