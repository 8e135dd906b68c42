"""A finished stretch of a tape as one sealed blob: what an archive is made of. Pure.

    segment = magic, version, header, record ..., seal      (streams.framing)
    header  = canonical msgpack [run, position before the first record, digest of that record]

So segments chain as records do: each names the digest that its first fact follows. The digest
before position 1 is the run's genesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from streams.chain import Chain
from streams.codec import ENVELOPE_BYTES_MAX, decode_envelope, encode_envelope, pack, unpack
from streams.envelope import Envelope
from streams.errors import BadName, ChainBroken, SegmentCorrupt, Unreadable
from streams.framing import LENGTH, SEAL_BYTES, begin, encode_record, encode_seal
from streams.subjects import checked

MAGIC = b"decodiloco part\n"
VERSION = 1
HEADER_BYTES_MAX = 256
FACTS_MAX = 1000
SEGMENT_BYTES_MAX = FACTS_MAX * (LENGTH.size + ENVELOPE_BYTES_MAX) + SEAL_BYTES + 512


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a run's tape: what it follows (`before`), and at least one record."""

    before: Chain
    records: tuple[Envelope, ...]

    @property
    def first(self) -> int:
        return self.before.position + 1

    @property
    def last(self) -> int:
        return self.before.position + len(self.records)


def encode_segment(before: Chain, records: Sequence[Envelope]) -> bytes:
    """The bytes of a segment. Raises ChainBroken for records that do not follow `before`."""
    assert 1 <= len(records) <= FACTS_MAX
    pieces = [begin(MAGIC, VERSION, pack([before.run, before.position, before.tip]))]
    chain = before
    for record in records:
        chain = chain.then(record)
        pieces.append(encode_record(encode_envelope(record)))
    body = b"".join(pieces)
    return body + encode_seal(len(records), chain.tip, blake3(body))


def decode_segment(payload: bytes, name: str) -> Segment:
    """The segment in these bytes, every one of which is checked.

    Raises SegmentCorrupt with `name` for anything else, whatever the bytes are.
    """
    try:
        before, offset = _header(payload)
        chain, records = before, []
        end = len(payload) - SEAL_BYTES
        while offset < end:
            length = LENGTH.unpack_from(payload, offset)[0]
            offset += LENGTH.size
            if not 0 < length <= min(ENVELOPE_BYTES_MAX, end - offset):
                raise Unreadable(f"a record of {length} bytes cannot stand there")
            record = decode_envelope(payload[offset : offset + length])
            chain = chain.then(record)
            records.append(record)
            offset += length
        if not 1 <= len(records) <= FACTS_MAX:
            raise Unreadable(f"it holds {len(records)} records")
        seal = encode_seal(len(records), chain.tip, blake3(payload[:end]))
        if payload[end:] != seal:
            raise Unreadable("the seal does not fit")
    except (Unreadable, ChainBroken, BadName) as error:
        raise SegmentCorrupt(f"segment {name} is not what was archived: {error}") from None
    return Segment(before, tuple(records))


def _header(payload: bytes) -> tuple[Chain, int]:
    fixed = len(MAGIC) + 2 + LENGTH.size
    if len(payload) < fixed + SEAL_BYTES or payload[: len(MAGIC)] != MAGIC:
        raise Unreadable("it does not begin as a segment does")
    version = int.from_bytes(payload[len(MAGIC) : len(MAGIC) + 2], "big")
    if version != VERSION:
        raise Unreadable(f"segment version {version}; this build reads {VERSION}")
    length = LENGTH.unpack_from(payload, fixed - LENGTH.size)[0]
    if length > min(HEADER_BYTES_MAX, len(payload) - fixed - SEAL_BYTES):
        raise Unreadable(f"a header of {length} bytes cannot stand there")
    header = payload[fixed : fixed + length]
    value = unpack(header, HEADER_BYTES_MAX)
    if not isinstance(value, tuple) or len(value) != 3:
        raise Unreadable("its header is not [run, position, digest]")
    run, position, digest = value
    if not isinstance(run, str) or type(position) is not int or not isinstance(digest, bytes):
        raise Unreadable("its header is not [run, position, digest]")
    if position < 0 or len(digest) != 32 or pack([run, position, digest]) != header:
        raise Unreadable("its header is not in canonical form")
    before = Chain(checked(run, "run"), position, digest if position else b"")
    if before.tip != digest:
        raise Unreadable("it does not begin with the run's genesis")
    return before, fixed + length
