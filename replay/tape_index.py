"""A sealed tape file read from any position on: its lengths and its seal are checked, all of them.

Knows bytes, as `tape_file` does. Whoever reads a stretch here checks the chain of that stretch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from replay.errors import TapeCorrupt
from replay.tape_file import Scan, open_file, read_tape_file
from streams.codec import ENVELOPE_BYTES_MAX, decode_envelope, digest_of
from streams.envelope import Envelope
from streams.errors import Unreadable
from streams.framing import COUNT, LENGTH, SEAL_BYTES, encode_seal

Positions = npt.NDArray[np.uint64]

PIECE_BYTES = 8 << 20
BLOCK_RECORDS = 4096
LENGTH_BYTES = LENGTH.size


class FileRecords:
    """The records of a sealed tape file by position. `last` is the position of the newest.

    Opening it reads every byte and holds them against the seal, and hops from length to length;
    no record is decoded before it is asked for. Raises what `read_tape_file` raises.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_file(path)
        try:
            self._starts = _starts(self._file, path)
        except BaseException:
            self._file.close()
            raise
        self.last = len(self._starts) - 1

    def read(self, after: int) -> Iterator[Envelope]:
        """The records that follow position `after`, to the last."""
        while after < self.last:
            stop = min(self.last, after + BLOCK_RECORDS)
            data, base = self._block(after, stop)
            for position in range(after + 1, stop + 1):
                yield self._decoded(position, data, base)
            after = stop

    def back(self, kind: str, upto: int) -> Iterator[Envelope]:
        """The facts of one kind, backwards from position `upto` on.

        A record that does not hold the kind's name is none, and is not decoded.
        """
        named = kind.encode()
        stop = min(upto, self.last)
        while stop > 0:
            start = max(0, stop - BLOCK_RECORDS)
            data, base = self._block(start, stop)
            end = len(data)
            while (at := data.rfind(named, 0, end)) >= 0:
                position = int(np.searchsorted(self._starts, np.uint64(base + at), "right"))
                envelope = self._decoded(position, data, base)
                if envelope.event.kind == kind:
                    yield envelope
                end = int(self._starts[position - 1]) - base
            stop = start

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def _block(self, after: int, stop: int) -> tuple[bytes, int]:
        """The bytes of the records after a position, and where in the file they begin."""
        base = int(self._starts[after])
        size_bytes = int(self._starts[stop]) - base
        data = os.pread(self._file.fileno(), size_bytes, base)
        if len(data) < size_bytes:
            raise TapeCorrupt(after + 1, f"{self._path} was cut short while it was read")
        return data, base

    def _decoded(self, position: int, data: bytes, base: int) -> Envelope:
        begin, end = (int(start) - base for start in self._starts[position - 1 : position + 1])
        try:
            envelope = decode_envelope(data[begin + LENGTH_BYTES : end])
        except Unreadable as error:
            raise TapeCorrupt(position, f"its bytes cannot be read ({error})") from None
        if envelope.position != position:
            raise TapeCorrupt(position, f"a record numbered {envelope.position} stands there")
        return envelope


def _starts(file: BinaryIO, path: Path) -> Positions:
    """Where each record begins, and the seal; every byte agrees with the seal."""
    scan = Scan(file, path)
    seal_at = os.fstat(file.fileno()).st_size - SEAL_BYTES
    starts = _hops(file, scan.offset, seal_at, scan.hasher)
    records = len(starts) - 1
    seal = file.read(SEAL_BYTES + 1)
    if starts[-1] != seal_at or not _are_records(starts) or not _fits(seal, records, scan.hasher):
        raise _what_is_wrong(path, records)
    tip = scan.chain.tip  # of a tape without a record
    if records:
        last = os.pread(file.fileno(), seal_at - int(starts[-2]), int(starts[-2]))
        tip = digest_of(last[LENGTH_BYTES:])
    if tip != _last_digest(seal):
        raise _what_is_wrong(path, records)
    return starts


def _hops(file: BinaryIO, begin: int, end: int, hasher: blake3) -> Positions:
    """Where one comes to by hopping from length to length, up to `end`; what lies there is hashed.

    A length may say anything here: whether these are records is for others to check.
    """
    found: list[Positions] = []
    length_at, at, base, tail = LENGTH.unpack_from, 0, begin, b""
    while piece := file.read(max(0, min(PIECE_BYTES, end - base - len(tail)))):
        hasher.update(piece)
        data = tail + piece
        hops: list[int] = []
        note, stop = hops.append, len(data) - LENGTH_BYTES
        while at <= stop:
            note(at)
            at += length_at(data, at)[0] + LENGTH_BYTES
        found.append(np.array(hops, np.uint64) + np.uint64(base))
        kept = min(at, len(data))
        at, base, tail = at - kept, base + kept, data[kept:]
    return np.concatenate([*found, np.array([base + at], np.uint64)])


def _are_records(starts: Positions) -> bool:
    """Whether each has a length that a record may have."""
    lengths = np.diff(starts).astype(np.int64) - LENGTH_BYTES
    return bool(((lengths > 0) & (lengths <= ENVELOPE_BYTES_MAX)).all())


def _fits(seal: bytes, records: int, hasher: blake3) -> bool:
    return len(seal) == SEAL_BYTES and seal == encode_seal(records, _last_digest(seal), hasher)


def _last_digest(seal: bytes) -> bytes:
    begin = LENGTH_BYTES + COUNT.size
    return seal[begin : begin + 32]


def _what_is_wrong(path: Path, records: int) -> TapeCorrupt:
    """Reads the file strictly, which raises where it breaks."""
    for _ in read_tape_file(path):
        pass
    return TapeCorrupt(records + 1, f"{path} was written to while it was read; read it again")
