"""The archive of a run as it lies in the store: segments by key, each read and checked whole.

Knows keys, digests and the chain; neither servers nor what facts mean. Two archivers may have cut
the same stretch differently: as long as their facts are the same ones, that is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from blake3 import blake3

from decodiloco.errors import BlobMissing
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import archive_key, prefixes_of
from streams.chain import Chain
from streams.envelope import Envelope
from streams.errors import SegmentCorrupt
from streams.manifest import Manifest
from streams.segment import SEGMENT_BYTES_MAX, Segment, decode_segment, encode_segment

CODEC = "segment"


@dataclass(frozen=True, slots=True, order=True)
class Named:
    """A segment by its key: the position of its first fact, and the start of its digest."""

    first: int
    mark: str
    key: str


def cut(before: Chain, records: list[Envelope]) -> tuple[str, bytes]:
    """Key and bytes of the segment that holds these records, the first of which follows `before`.

    Raises ChainBroken for records that do not follow.
    """
    payload = encode_segment(before, records)
    manifest = Manifest(bytes=len(payload), digest=blake3(payload).digest(), codec=CODEC)
    return archive_key(before.run, before.position + 1, manifest), payload


def listed(store: BlobStore, run: str) -> list[Named]:
    """The archived segments of a run, by position. Raises SegmentCorrupt for a key of none."""
    prefix = prefixes_of(run)["archive"]
    found = []
    for key in store.keys(prefix):
        first, _, mark = key.removeprefix(prefix).partition("-")
        if not first.isdecimal() or len(mark) != 16 or first != str(int(first)):
            raise SegmentCorrupt(f"{key} in {store.url} is no segment of an archive: remove it")
        found.append(Named(int(first), mark, key))
    return sorted(found)


def read_segment(store: BlobStore, run: str, named: Named) -> Segment:
    """One segment, every byte of it checked. Raises SegmentCorrupt or BlobMissing."""
    size_bytes = store.size(named.key)
    if size_bytes is None:
        raise BlobMissing(f"blob {named.key} is not in {store.url}")
    if size_bytes > SEGMENT_BYTES_MAX:
        raise SegmentCorrupt(f"segment {named.key} has {size_bytes} bytes; none has so many")
    payload = bytes(store.read(named.key, 0, size_bytes))
    found = blake3(payload).hexdigest()[:16]
    if found != named.mark:
        raise SegmentCorrupt(
            f"segment {named.key} was altered: its bytes have the digest {found}, not {named.mark}"
        )
    segment = decode_segment(payload, named.key)
    if segment.before.run != run or segment.first != named.first:
        raise SegmentCorrupt(
            f"segment {named.key} holds run {segment.before.run} from position {segment.first} on"
        )
    return segment


def archived_to(store: BlobStore, run: str) -> Chain:
    """Where the archive ends, by its newest segment alone: whoever goes on needs no more."""
    names = listed(store, run)
    chain = Chain(run)
    for named in names:
        if named.first == names[-1].first:
            segment = read_segment(store, run, named)
            if segment.last > chain.position:
                chain = Chain(run, segment.last, segment.records[-1].digest)
    return chain


def archived(store: BlobStore, run: str) -> Iterator[Envelope]:
    """Every archived record in order, from the first, the archive being checked end to end.

    Raises SegmentCorrupt naming the segment for an altered one, a gap and a fork: two that hold
    different facts at one position. Of what overlaps, every record is compared.
    """
    chain = Chain(run)
    digests: list[bytes] = []
    for named in listed(store, run):
        if named.first > chain.position + 1:
            raise SegmentCorrupt(
                f"the archive of run {run} has a gap: positions {chain.position + 1} to "
                f"{named.first - 1} are missing before segment {named.key}"
            )
        segment = read_segment(store, run, named)
        before = segment.before
        if before.position and before.digest != digests[before.position - 1]:
            raise _fork(named, before.position)
        for record in segment.records:
            if record.position > chain.position:
                chain = chain.then(record)
                digests.append(record.digest)
                yield record
            elif record.digest != digests[record.position - 1]:
                raise _fork(named, record.position)


def _fork(named: Named, position: int) -> SegmentCorrupt:
    return SegmentCorrupt(
        f"the archive of run {named.key.partition('/')[0]} forks: segment {named.key} has another "
        f"fact at position {position} than the segments before it"
    )
