"""The bytes that two tapes name, compared: copies of one blob, and two merges of one version.

Reads stores and no tape. A blob that is not what its tape names is compared all the same: where
it differs is what a person wants to know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.store.blobs import BlobStore
from decodiloco.store.codecs import decode
from decodiloco.store.header import LENGTH_BYTES, Entry, parse_header
from decodiloco.store.keys import global_key
from decodiloco.store.small import read_small
from decodiloco.store.tensors import RAW, open_tensors
from replay.blob_checks import SMALL
from replay.diff.merges import Merge, Pair
from streams.manifest import Manifest

READ_BYTES = 8 * 1024 * 1024
HEADER_BYTES_MAX = 64 * 1024 * 1024
TOLD_MAX = 5

_CODECS = {"F32": "fp32", "BF16": "bf16"}


@dataclass(frozen=True, slots=True)
class Unlike:
    """One blob, or one merge's two, that differ: which, and how."""

    key: str
    what: str


@dataclass(slots=True)
class Compared:
    """How many blobs were compared, and what differs: the first of it, and how often."""

    blobs: int = 0
    bytes: int = 0
    count: int = 0
    unlike: list[Unlike] = field(default_factory=list)

    def add(self, key: str, what: str) -> None:
        """Takes in one difference; only the first are told in words."""
        self.count += 1
        if len(self.unlike) < TOLD_MAX:
            self.unlike.append(Unlike(key, what))


def compare_copies(
    found: Compared, named: Iterable[tuple[str, Manifest]], one: BlobStore, other: BlobStore
) -> None:
    """Each blob as it lies in two stores, byte for byte. What neither has is passed over."""
    for key, manifest in named:
        sizes = one.size(key), other.size(key)
        if sizes == (None, None):
            continue
        found.blobs += 1
        if None in sizes:
            found.add(key, f"only {'B' if sizes[0] is None else 'A'} has it")
            continue
        if sizes[0] != sizes[1]:
            found.add(key, f"{sizes[0]} bytes in A, {sizes[1]} in B, {manifest.bytes} named")
            continue
        found.bytes += manifest.bytes
        at = _first_unlike_byte(one, other, key, sizes[0] or 0)
        if at is not None:
            found.add(key, _told_copies(one, other, key, manifest, at))


def compare_merges(
    found: Compared,
    made: Iterable[Pair],
    runs: tuple[str, str],
    one: BlobStore,
    other: BlobStore,
) -> None:
    """The parameters of versions that both runs made, and that differ: how far apart they are."""
    for pair in made:
        if pair.one is None or pair.other is None:
            continue
        keys = _parameters_key(runs[0], pair.one), _parameters_key(runs[1], pair.other)
        manifests = pair.one.event.parameters, pair.other.event.parameters
        if manifests[0].digest == manifests[1].digest:
            continue
        found.blobs += 1
        found.bytes += manifests[0].bytes
        name = f"f{pair.fragment} v{pair.version} parameters"
        try:
            mine = open_tensors(one, keys[0], manifests[0])
            theirs = open_tensors(other, keys[1], manifests[1])
            if mine.names != theirs.names:
                found.add(name, "they hold other tensors")
                continue
            arrays = ((each, mine.read(each), theirs.read(each)) for each in mine.names)
            found.add(name, _told_arrays(arrays))
        except (BlobMissing, BlobCorrupt) as error:
            found.add(name, str(error))


def _parameters_key(run: str, merge: Merge) -> str:
    event = merge.event
    return global_key(run, event.fragment, event.version, event.parameters)


def _first_unlike_byte(one: BlobStore, other: BlobStore, key: str, size: int) -> int | None:
    for start in range(0, size, READ_BYTES):
        stop = min(start + READ_BYTES, size)
        mine = np.frombuffer(one.read(key, start, stop), np.uint8)
        theirs = np.frombuffer(other.read(key, start, stop), np.uint8)
        unlike = np.flatnonzero(mine != theirs)
        if unlike.size:
            return start + int(unlike[0])
    return None


def _told_copies(one: BlobStore, other: BlobStore, key: str, manifest: Manifest, at: int) -> str:
    """Where two copies of a blob differ first, and which of them is what the tape names."""
    sound = [_is_sound(store, key, manifest) for store in (one, other)]
    whose = {
        (True, False): "; A's is what the tape names, B's is not",
        (False, True): "; B's is what the tape names, A's is not",
        (False, False): "; neither is what the tape names",
    }.get((sound[0], sound[1]), "")
    found = _entry_at(one, other, key, manifest, at)
    if found is None:
        return f"byte {at} is the first that differs{whose}"
    entry, start = found
    stop = start + entry.stop - entry.start
    arrays = [decode(store.read(key, start, stop), _CODECS[entry.dtype]) for store in (one, other)]
    return _told_arrays([(entry.name, arrays[0], arrays[1])]) + whose


def _is_sound(store: BlobStore, key: str, manifest: Manifest) -> bool:
    """Whether a copy is what the tape names, to its last byte."""
    try:
        if manifest.codec == SMALL:
            read_small(store, key, manifest)
            return True
        blob = open_tensors(store, key, manifest)
        for name in blob.names:
            if manifest.codec == RAW:
                blob.read_raw(name)
            else:
                blob.read(name)
    except (BlobMissing, BlobCorrupt):
        return False
    return True


def _entry_at(
    one: BlobStore, other: BlobStore, key: str, manifest: Manifest, at: int
) -> tuple[Entry, int] | None:
    """The float tensor in which a byte of a blob lies, and where it begins; None if in none."""
    for store in (one, other):
        size = LENGTH_BYTES + int.from_bytes(store.read(key, 0, LENGTH_BYTES), "little")
        if size > min(manifest.bytes, HEADER_BYTES_MAX):
            continue
        try:
            header = parse_header(bytes(store.read(key, 0, size)), key)
        except BlobCorrupt:
            continue
        for entry in header.entries:
            if entry.start <= at - size < entry.stop and entry.dtype in _CODECS:
                return entry, size + entry.start
    return None


def _told_arrays(pairs: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> str:
    """The first element that differs, and the relative norm over all tensors, in float64."""
    first, gap, whole = "", 0.0, 0.0
    for name, mine, theirs in pairs:
        if mine.shape != theirs.shape:
            return f"{name} has shape {mine.shape} in A and {theirs.shape} in B"
        a, b = mine.reshape(-1).astype(np.float64), theirs.reshape(-1).astype(np.float64)
        unlike = np.flatnonzero((a != b) & ~(np.isnan(a) & np.isnan(b)))
        if unlike.size and not first:
            at = int(unlike[0])
            first = f"{name}[{at}] is the first that differs, {a[at]:.8g} in A, {b[at]:.8g} in B"
        with np.errstate(all="ignore"):
            gap += float(np.sum((a - b) ** 2))
            whole += float(np.sum(a**2))
    relative = math.sqrt(gap / whole) if whole > 0 else math.inf if gap else 0.0
    return f"{first or 'same values, other bytes'}; |A - B| / |A| = {relative:.3g}"
