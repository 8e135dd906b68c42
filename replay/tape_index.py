"""A sealed tape file read from any position on: its lengths and its seal are checked, all of them.

Knows bytes, as `tape_file` does. Whoever reads a stretch here checks the chain of that stretch.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from replay.errors import TapeCorrupt
from replay.tape_file import Scan, open_file, read_tape_file
from streams.codec import ENVELOPE_BYTES_MAX, decode_envelope, digest_of
from streams.envelope import Envelope
from streams.errors import Unreadable
from streams.framing import COUNT, LENGTH, SEAL_BYTES, encode_seal

PIECE_BYTES = 8 << 20
BLOCK_RECORDS = 4096


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
                position = bisect_right(self._starts, base + at)
                envelope = self._decoded(position, data, base)
                if envelope.event.kind == kind:
                    yield envelope
                end = self._starts[position - 1] - base
            stop = start

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def _block(self, after: int, stop: int) -> tuple[bytes, int]:
        """The bytes of the records after a position, and where in the file they begin."""
        base = self._starts[after]
        size_bytes = self._starts[stop] - base
        data = os.pread(self._file.fileno(), size_bytes, base)
        if len(data) < size_bytes:
            raise TapeCorrupt(after + 1, f"{self._path} was cut short while it was read")
        return data, base

    def _decoded(self, position: int, data: bytes, base: int) -> Envelope:
        begin, end = self._starts[position - 1] - base, self._starts[position] - base
        try:
            envelope = decode_envelope(data[begin + LENGTH.size : end])
        except Unreadable as error:
            raise TapeCorrupt(position, f"its bytes cannot be read ({error})") from None
        if envelope.position != position:
            raise TapeCorrupt(position, f"a record numbered {envelope.position} stands there")
        return envelope


def _starts(file: BinaryIO, path: Path) -> array[int]:
    """Where each record begins, and the seal; every byte agrees with the seal."""
    scan = Scan(file, path)
    starts = array("Q")
    data, is_sealed = b"", False
    while not is_sealed and (piece := file.read(PIECE_BYTES)):
        data += piece
        end, is_sealed = _hop(data, scan.offset, starts)
        scan.hasher.update(data[:end])
        scan.offset += end
        data = data[end:]
    seal = data + file.read(max(0, SEAL_BYTES + 1 - len(data)))
    if not is_sealed or not starts or not _fits(seal, starts, scan.hasher):
        raise _what_is_wrong(path, len(starts))
    last = os.pread(file.fileno(), scan.offset - starts[-1], starts[-1])
    if digest_of(last[LENGTH.size :]) != _last_digest(seal):
        raise _what_is_wrong(path, len(starts))
    starts.append(scan.offset)
    return starts


def _hop(data: bytes, base: int, starts: array[int]) -> tuple[int, bool]:
    """Notes the whole records in `data`; where they end, and whether the seal begins there."""
    at, end = 0, len(data) - LENGTH.size
    length_at, note = LENGTH.unpack_from, starts.append
    while at <= end:
        (length,) = length_at(data, at)
        if length == 0 or length > ENVELOPE_BYTES_MAX:
            return at, True  # a length that none has is no seal: what is wrong is told then
        following = at + LENGTH.size + length
        if following > len(data):
            break
        note(base + at)
        at = following
    return at, False


def _fits(seal: bytes, starts: array[int], hasher: blake3) -> bool:
    return len(seal) == SEAL_BYTES and seal == encode_seal(len(starts), _last_digest(seal), hasher)


def _last_digest(seal: bytes) -> bytes:
    begin = LENGTH.size + COUNT.size
    return seal[begin : begin + 32]


def _what_is_wrong(path: Path, records: int) -> TapeCorrupt:
    """Reads the file strictly, which raises where it breaks."""
    for _ in read_tape_file(path):
        pass
    return TapeCorrupt(records + 1, f"{path} was written to while it was read; read it again")
