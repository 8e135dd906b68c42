"""The header of a tensor blob: what a safetensors file says of itself, and our one metadata key.

A header has one canonical form: the metadata first, then tensors in the order of their bytes,
compact JSON in ASCII, padded with spaces to 8 bytes. Reading renders again what was read and
compares, so that whatever a stranger wrote is either canonical or refused. Reads no store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from decodiloco.errors import BlobCorrupt

FORMAT = 1
LENGTH_BYTES = 8
HEADER_BYTES_MAX = 16 * 1024 * 1024
TENSORS_MAX = 100_000
DIMENSIONS_MAX = 32
CHUNK_BYTES = 8 * 1024 * 1024
METADATA = "decodiloco"
HELD_BYTES_MAX = 64 * 1024  # of a header that is kept, as it will soon be read again
HELD_MAX = 128

ITEM_BYTES = {"F32": 4, "BF16": 2, "I64": 8, "U8": 1}

_UNFIT = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    AssertionError,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a blob; `start` and `stop` are bytes within the payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """A blob's tensors, the blake3 of each 8 MiB of payload, and the tensors' sums of squares.

    `squares` is in the order of the tensors; None for blobs that are no deltas. `shapes` are those
    of the tensors where an entry's own shape is one of coded bytes; None elsewhere.
    """

    entries: tuple[Entry, ...]
    chunks: tuple[bytes, ...]
    squares: tuple[float, ...] | None
    shapes: tuple[tuple[int, ...], ...] | None = None

    @property
    def payload_bytes(self) -> int:
        """How many bytes follow the header."""
        return self.entries[-1].stop if self.entries else 0


def place(named: Sequence[tuple[str, str, tuple[int, ...]]]) -> tuple[Entry, ...]:
    """Entries for (name, dtype, shape) one after another without holes."""
    entries, start = [], 0
    for name, dtype, shape in named:
        stop = start + math.prod(shape) * ITEM_BYTES[dtype]
        entries.append(Entry(name, dtype, shape, start, stop))
        start = stop
    return tuple(entries)


def render_header(header: Header) -> bytes:
    """The first bytes of a blob: 8 of length, then the JSON."""
    told: dict[str, Any] = {
        "chunks": [chunk.hex() for chunk in header.chunks],
        "format": FORMAT,
        "squares": None if header.squares is None else [value.hex() for value in header.squares],
    }
    if header.shapes is not None:
        told["shapes"] = header.shapes
    table: dict[str, Any] = {"__metadata__": {METADATA: _compact(told)}}
    for entry in header.entries:
        assert entry.name not in table, entry.name
        table[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [entry.start, entry.stop],
        }
    text = _compact(table).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def parse_header(payload: bytes, key: str) -> Header:
    """The header in these bytes of blob `key`. Raises BlobCorrupt, whatever the bytes are."""
    try:
        is_small = len(payload) <= HELD_BYTES_MAX
        header, canonical = _held(payload) if is_small else _judged(payload)
    except _UNFIT as why:
        told = f"{type(why).__name__}: {why}"[:120]
        raise BlobCorrupt(f"blob {key}: its header is none of ours: {told}") from None
    if not canonical:
        raise BlobCorrupt(f"blob {key}: its header is not in canonical form")
    return header


def _judged(payload: bytes) -> tuple[Header, bool]:
    """The header in these bytes, and whether it is in canonical form."""
    header = _parsed(json.loads(payload[LENGTH_BYTES:]))
    return header, render_header(header) == payload


_held = lru_cache(HELD_MAX)(_judged)  # a blob is opened by a merge, its checks and its learners


def _parsed(table: Any) -> Header:
    """The header of a JSON value. What this overlooks, rendering it again brings to light."""
    told = json.loads(table.pop("__metadata__")[METADATA])
    if len(table) > TENSORS_MAX or told["format"] != FORMAT:
        raise ValueError("too many tensors, or another format")
    named = []
    for name, entry in table.items():
        named.append((name, str(entry["dtype"]), _shape(name, entry["shape"])))
    squares, shapes = told["squares"], told.get("shapes")
    header = Header(
        place(named),
        tuple(bytes.fromhex(chunk) for chunk in told["chunks"]),
        None if squares is None else tuple(float.fromhex(value) for value in squares),
        None if shapes is None else tuple(map(_shape, table, shapes)),
    )
    if len(header.chunks) != -(-header.payload_bytes // CHUNK_BYTES):
        raise ValueError("one digest for each chunk of payload")
    if any(len(chunk) != 32 for chunk in header.chunks):
        raise ValueError("a digest has 32 bytes")
    if header.squares is not None and len(header.squares) != len(header.entries):
        raise ValueError("one sum of squares for each tensor")
    if header.shapes is not None and len(header.shapes) != len(header.entries):
        raise ValueError("one shape for each tensor")
    return header


def _shape(name: str, told: Any) -> tuple[int, ...]:
    shape = tuple(told)
    if len(shape) > DIMENSIONS_MAX or not all(_is_size(size) for size in shape):
        raise ValueError(f"shape of {name[:40]!r}")
    return shape


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode
