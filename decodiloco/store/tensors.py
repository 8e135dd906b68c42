"""Tensors as one blob and back: a safetensors file that can be checked piece by piece.

The manifest's digest is the blake3 of the header, and the header holds the blake3 of each 8 MiB
of payload: one digest commits to everything, and every ranged read is checked by itself.
Knows the store only as something that reads ranges; waits for nothing and retries nothing but
what came broken over the wire, or out of a cache.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from decodiloco.errors import BlobCorrupt
from decodiloco.merge.exact import square_sum
from decodiloco.store.codecs import BLOCKS, coded_bytes, decode, encoded_view
from decodiloco.store.header import (
    CHUNK_BYTES,
    HEADER_BYTES_MAX,
    LENGTH_BYTES,
    Entry,
    Header,
    parse_header,
    place,
    render_header,
)
from streams.manifest import Manifest

FIRST_READ_BYTES = 64 * 1024
RAW = "raw"

_DTYPE_OF_CODEC = {"fp32": "F32", "bf16": "BF16", "int8": "U8", "int4": "U8"}
_RAW_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
}

Part = bytes | memoryview
Floats = npt.NDArray[np.float32]


class Ranges(Protocol):
    """The side of a BlobStore that is needed here."""

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        """Exactly `stop - start` bytes; `anew` when those of before were broken."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A blob ready to be stored: its parts in order, and the manifest that names it.

    Parts may be the memory of the arrays they were made from: change none before it is stored.
    """

    parts: Sequence[Part]
    manifest: Manifest


def encode_tensors(tensors: Mapping[str, Floats], codec: str, squares: bool = False) -> Encoded:
    """Code float32 tensors, sorted by name, as one blob.

    `codec` is any of `decodiloco.store.codecs`. With `squares` (deltas) the header carries the sum
    of squares of each tensor as it will be decoded. The same tensors give the same bytes on any
    machine.
    """
    names = sorted(tensors)
    coded = [(name, encoded_view(tensors[name], codec)) for name in names]
    sums = None
    if squares:
        sums = [square_sum(decode(part, codec, tensors[name].size)) for name, part in coded]
    return _of_parts(tensors, coded, codec, sums)


def encode_with_loss(
    tensors: Mapping[str, Floats], codec: str
) -> tuple[Encoded, dict[str, Floats]]:
    """A delta as `encode_tensors` codes it, and what that lost: x - decode(encode(x)), flat."""
    coded, sums, lost = [], [], {}
    for name in sorted(tensors):
        part = encoded_view(tensors[name], codec)
        decoded = decode(part, codec, tensors[name].size)
        coded.append((name, part))
        sums.append(square_sum(decoded))
        with np.errstate(all="ignore"):  # what is not finite is judged by the merge
            lost[name] = np.subtract(tensors[name].reshape(-1), decoded)
    return _of_parts(tensors, coded, codec, sums), lost


def encode_raw(arrays: Mapping[str, npt.NDArray[Any]]) -> Encoded:
    """Code arrays of float32, int64 or uint8 as they are (checkpoints).

    Wider elements come first, so that all are aligned; within one width, sorted by name.
    """
    dtypes = {name: _raw_dtype(name, array) for name, array in arrays.items()}
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    payload = [np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data for name in names]
    named = [(name, dtypes[name], arrays[name].shape) for name in names]
    return _sealed(named, payload, RAW, None)


def headed(
    named: Sequence[tuple[str, str, tuple[int, ...]]],
    chunks: tuple[bytes, ...],
    codec: str,
    sums: Sequence[float] | None = None,
    shapes: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[bytes, Manifest]:
    """A blob's header, and the manifest that names the blob: of (name, dtype, shape) in the order
    of their bytes, and of the digests of the payload's chunks.
    """
    header = Header(place(named), chunks, None if sums is None else tuple(sums), shapes)
    start = render_header(header)
    assert len(start) <= HEADER_BYTES_MAX, f"a header of {len(start)} bytes"
    size_bytes, digest = len(start) + header.payload_bytes, blake3(start).digest()
    return start, Manifest(bytes=size_bytes, digest=digest, codec=codec)


def open_tensors(store: Ranges, key: str, manifest: Manifest) -> TensorBlob:
    """Read and check a blob's header; the payload is read when it is asked for.

    Raises BlobMissing, or BlobCorrupt when it is not the blob that the manifest names.
    """
    try:
        start = _header_bytes(store, key, manifest, anew=False)
    except BlobCorrupt:
        start = _header_bytes(store, key, manifest, anew=True)
    size = len(start)
    header = parse_header(start, key)
    if size + header.payload_bytes != manifest.bytes:
        raise BlobCorrupt(f"blob {key}: its tensors do not fill {manifest.bytes} bytes")
    wanted = _DTYPE_OF_CODEC.get(manifest.codec)
    known = _RAW_DTYPES if manifest.codec == RAW else (wanted,)
    if any(entry.dtype not in known for entry in header.entries) or not _fits(header, manifest):
        raise BlobCorrupt(f"blob {key}: its tensors are not coded in {manifest.codec}")
    return TensorBlob(store, key, manifest, header)


def _header_bytes(store: Ranges, key: str, manifest: Manifest, anew: bool) -> bytes:
    """The first bytes of a blob up to its payload: what the manifest's digest is over."""
    start = bytes(store.read(key, 0, min(FIRST_READ_BYTES, manifest.bytes), anew))
    size = LENGTH_BYTES + int.from_bytes(start[:LENGTH_BYTES], "little")
    if size > min(manifest.bytes, HEADER_BYTES_MAX) or len(start) < LENGTH_BYTES:
        raise BlobCorrupt(f"blob {key}: a header of {size} bytes in {manifest.bytes}")
    if size > len(start):
        start += bytes(store.read(key, len(start), size, anew))
    if blake3(start[:size]).digest() != manifest.digest:
        raise BlobCorrupt(f"blob {key}: its header does not match {manifest.digest.hex()[:16]}")
    return start[:size]


def read_tensors(store: Ranges, key: str, manifest: Manifest) -> dict[str, Floats]:
    """Read and check a whole blob of float32 tensors, in the order of their names."""
    blob = open_tensors(store, key, manifest)
    return {name: blob.read(name) for name in blob.names}


def read_raw(store: Ranges, key: str, manifest: Manifest) -> dict[str, npt.NDArray[Any]]:
    """Read and check a whole blob that `encode_raw` made, in the order of its bytes."""
    blob = open_tensors(store, key, manifest)
    return {name: blob.read_raw(name) for name in blob.names}


class TensorBlob:
    """An opened blob whose header was checked. Safe to read from several threads.

    It keeps the last chunk it read, so a pass over the tensors in order reads each chunk once.
    """

    def __init__(
        self,
        store: Ranges,
        key: str,
        manifest: Manifest,
        header: Header,
        feed: Callable[[int], memoryview] | None = None,
    ) -> None:
        self.key = key
        self.codec = manifest.codec
        self._store = store
        self._manifest = manifest
        self._header = header
        self._feed = self.chunk if feed is None else feed
        self._payload_start = manifest.bytes - header.payload_bytes
        self._entries = {entry.name: place for place, entry in enumerate(header.entries)}
        self._lock = threading.Lock()
        self._held: tuple[int, memoryview] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names, in the order of their bytes."""
        return tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        place, shapes = self._entries[name], self._header.shapes
        return self._header.entries[place].shape if shapes is None else shapes[place]

    def squares(self, name: str) -> float | None:
        """The sum of squares that the header says the tensor has; None if it says nothing."""
        sums = self._header.squares
        return None if sums is None else sums[self._entries[name]]

    def chunks(self, name: str, elements_max: int) -> Iterator[Floats]:
        """The tensor's elements, float32 and 1-D, in order, `elements_max` at a time.

        Each is checked before it is given. Raises BlobMissing or BlobCorrupt.
        """
        blocks = BLOCKS.get(self.codec)
        assert blocks is None or elements_max % blocks.elements == 0, "whole blocks at a time"
        elements = math.prod(self.shape(name))
        for first in range(0, elements, elements_max):
            yield self._decoded(name, first, min(first + elements_max, elements))

    def words(self, name: str, elements_max: int) -> Iterator[npt.NDArray[np.uint16]]:
        """The same of a bf16 blob, not decoded: the upper halves of the float32 words."""
        assert self.codec == "bf16", self.codec
        entry = self._entry(name)
        for start in range(entry.start, entry.stop, elements_max * 2):
            stop = min(start + elements_max * 2, entry.stop)
            yield np.frombuffer(self._payload(start, stop), np.uint16)

    def read(self, name: str) -> Floats:
        """The whole tensor in its shape, as a new array."""
        shape = self.shape(name)
        return self._decoded(name, 0, math.prod(shape)).reshape(shape).copy()

    def read_raw(self, name: str) -> npt.NDArray[Any]:
        """The whole array in its own dtype, as a new array."""
        entry = self._entry(name)
        payload = self._payload(entry.start, entry.stop)
        values: npt.NDArray[Any] = np.frombuffer(payload, _RAW_DTYPES[entry.dtype])
        return values.reshape(entry.shape).copy()

    def _decoded(self, name: str, first: int, last: int) -> Floats:
        """These elements; the first of them begins a block, where the codec has blocks."""
        origin = self._entry(name).start
        start, stop = (origin + coded_bytes(count, self.codec) for count in (first, last))
        try:
            return decode(self._payload(start, stop), self.codec, last - first)
        except ValueError as why:
            raise BlobCorrupt(f"blob {self.key}: {name}: {why}") from None

    def _entry(self, name: str) -> Entry:
        return self._header.entries[self._entries[name]]

    def _payload(self, start: int, stop: int) -> Part:
        """Checked bytes of the payload: a view where they lie in one chunk, else a copy."""
        first, last = start // CHUNK_BYTES, max(start, stop - 1) // CHUNK_BYTES
        if start == stop:
            return b""
        parts = []
        for index in range(first, last + 1):
            origin = index * CHUNK_BYTES
            parts.append(self._chunk(index)[max(0, start - origin) : stop - origin])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def chunk_count(self) -> int:
        """How many chunks of at most 8 MiB the payload has."""
        return len(self._header.chunks)

    def fed_by(self, feed: Callable[[int], memoryview]) -> TensorBlob:
        """The same blob, opened once more, whose chunks `feed` gives: checked, by their number."""
        return TensorBlob(self._store, self.key, self._manifest, self._header, feed)

    def chunk(self, index: int, store: Ranges | None = None) -> memoryview:
        """One checked chunk, from another store if one is named; it is not kept.

        A broken one is read once more, anew: the wire may be at fault, or a cache. Raises
        BlobMissing or BlobCorrupt.
        """
        start = index * CHUNK_BYTES
        stop = min(start + CHUNK_BYTES, self._header.payload_bytes)
        for anew in (False, True):
            read = (store or self._store).read(
                self.key, self._payload_start + start, self._payload_start + stop, anew
            )
            if blake3(read).digest() == self._header.chunks[index]:
                return memoryview(read)
        raise BlobCorrupt(f"blob {self.key}: chunk {index} does not match its digest")

    def _chunk(self, index: int) -> memoryview:
        """The chunk that is held, or else a new one."""
        with self._lock:
            if self._held is None or self._held[0] != index:
                self._held = None  # two are never held at once
                self._held = index, self._feed(index)
            return self._held[1]


def _of_parts(
    tensors: Mapping[str, Floats],
    coded: Sequence[tuple[str, memoryview]],
    codec: str,
    sums: Sequence[float] | None,
) -> Encoded:
    """One blob of coded tensors. Where a tensor is coded bytes, the header tells its shape, too."""
    dtype, payload = _DTYPE_OF_CODEC[codec], [part for _, part in coded]
    shapes = tuple(tensors[name].shape for name, _ in coded)
    if codec not in BLOCKS:
        named = [(name, dtype, tensors[name].shape) for name, _ in coded]
        return _sealed(named, payload, codec, sums)
    return _sealed(
        [(name, dtype, (part.nbytes,)) for name, part in coded], payload, codec, sums, shapes
    )


def _fits(header: Header, manifest: Manifest) -> bool:
    """Whether each tensor's shape fits its bytes: they are one thing but where these are coded."""
    if manifest.codec not in BLOCKS:
        return header.shapes is None
    return header.shapes is not None and all(
        entry.shape == (coded_bytes(math.prod(shape), manifest.codec),)
        for entry, shape in zip(header.entries, header.shapes, strict=True)
    )


def _sealed(
    named: Sequence[tuple[str, str, tuple[int, ...]]],
    payload: Sequence[memoryview],
    codec: str,
    sums: Sequence[float] | None,
    shapes: tuple[tuple[int, ...], ...] | None = None,
) -> Encoded:
    start, manifest = headed(named, _chunk_digests(payload), codec, sums, shapes)
    return Encoded((start, *(part for part in payload if part.nbytes)), manifest)


def _chunk_digests(payload: Iterable[memoryview]) -> tuple[bytes, ...]:
    digests, hasher, room = [], blake3(), CHUNK_BYTES
    for part in payload:
        while part.nbytes:
            piece, part = part[:room], part[room:]
            hasher.update(piece)
            room -= piece.nbytes
            if room == 0:
                digests.append(hasher.digest())
                hasher, room = blake3(), CHUNK_BYTES
    if room < CHUNK_BYTES:
        digests.append(hasher.digest())
    return tuple(digests)


def _raw_dtype(name: str, array: npt.NDArray[Any]) -> str:
    for tag, dtype in _RAW_DTYPES.items():
        if array.dtype == dtype:
            return tag
    raise AssertionError(f"{name}: {array.dtype} is none of {', '.join(_RAW_DTYPES)}")
