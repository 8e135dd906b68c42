"""A tape in a file, read strictly. Knows bytes and the chain; nothing of folds, blobs or servers.

    file   = magic, version (2), header length (4), header, record ..., seal
    header = canonical msgpack [run, store URL]
    record = payload length (4), payload: the envelope's canonical bytes
    seal   = 0 (4), count (8), digest of the last record (32), blake3 of every byte before (32)

Numbers are big-endian. A length of zero cannot be a record's, so it opens the seal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from replay.errors import PlaceUnknown, TapeCorrupt
from streams.chain import Chain, check_follows
from streams.codec import ENVELOPE_BYTES_MAX, decode_envelope, pack, unpack
from streams.envelope import Envelope
from streams.errors import BadName, Unreadable
from streams.framing import COUNT, LENGTH, SEAL_BYTES, begin, encode_seal
from streams.subjects import checked

MAGIC = b"decodiloco tape\n"
VERSION = 1
HEADER_BYTES_MAX = 4096
READ_AHEAD_BYTES = 1 << 20
HASHED_AT_ONCE = 512  # lengths and records; hashed one by one they take several times as long

UNSEALED = (
    "the file ends without a seal: it is still being recorded, or the recorder was killed; "
    "`replay record RUN -o FILE` goes on where it stops, and seals it"
)


@dataclass(frozen=True, slots=True)
class Header:
    """What a tape file says of itself: the run, and where its blobs were (no credentials)."""

    run: str
    store: str


def encode_header(header: Header) -> bytes:
    """The first bytes of a tape file."""
    body = pack([header.run, header.store])
    assert len(body) <= HEADER_BYTES_MAX
    return begin(MAGIC, VERSION, body)


def is_tape_file(path: Path) -> bool:
    """Whether the file begins as a tape file does. Raises OSError when it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_header(path: Path) -> Header:
    """The header alone: which run a file holds, before anything else of it is trusted."""
    with open_file(path) as file:
        return Scan(file, path).header


def read_tape_file(path: Path) -> Iterator[Envelope]:
    """Every envelope of a sealed tape file, in order, each checked before it is handed out.

    Raises TapeCorrupt or ChainBroken, naming the position, for any byte that was changed, any
    record that was removed (the last too), added or moved, and for a file without its seal.
    What an iterator has yielded is chained and canonical; the seal is checked at the end.
    """
    with open_file(path) as file:
        scan = Scan(file, path)
        yield from scan.records()
        if scan.ended != "sealed":
            raise TapeCorrupt(scan.chain.position + 1, scan.tail_told)


class Scan:
    """One pass over a tape file: header at once, then records, then how it ends.

    After `records()` is exhausted, `ended` is "sealed", "open" (whole records, no seal) or
    "torn" (a part of a record or seal stands after the last whole one, at `offset`).
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._hasher = blake3()
        self._unhashed: list[bytes] = []
        self._last: Envelope | None = None
        self.offset = 0
        self.ended = "unread"
        self.header = self._read_header()

    @property
    def chain(self) -> Chain:
        """The end of the tape as far as it was read."""
        last, run = self._last, self.header.run
        return Chain(run) if last is None else Chain(run, last.position, last.digest)

    @property
    def hasher(self) -> blake3:
        """It has hashed every byte before `offset`."""
        self._hash()
        return self._hasher

    @property
    def tail_told(self) -> str:
        """Why a file that is not sealed cannot be trusted to its end."""
        torn = "the last record is cut short; " if self.ended == "torn" else ""
        return torn + UNSEALED

    def records(self) -> Iterator[Envelope]:
        """Whole, chained records up to the seal or the end."""
        read, position, tip = self._file.read, 1, self.chain.tip
        while True:
            prefix = read(LENGTH.size)
            if len(prefix) < LENGTH.size:
                self.ended = "torn" if prefix else "open"
                return
            length = LENGTH.unpack(prefix)[0]
            if length == 0:
                self._read_seal(prefix)
                return
            if length > ENVELOPE_BYTES_MAX:
                raise TapeCorrupt(position, f"its length says {length} bytes, which none has")
            payload = read(length)
            if len(payload) < length:
                self.ended = "torn"
                return
            try:
                envelope = decode_envelope(payload)
            except Unreadable as error:
                raise TapeCorrupt(position, f"its bytes cannot be read ({error})") from None
            check_follows(envelope, position - 1, tip)
            self._took(prefix, payload)
            self._last, position, tip = envelope, position + 1, envelope.digest
            yield envelope

    def _read_seal(self, prefix: bytes) -> None:
        last = self.chain.position
        rest = self._file.read(SEAL_BYTES - len(prefix) + 1)
        seal = prefix + rest
        if len(seal) < SEAL_BYTES:
            self.ended = "torn"
            return
        if self._is_blank(seal):
            self.ended = "torn"
            return
        if len(seal) > SEAL_BYTES:
            raise TapeCorrupt(last + 1, "bytes stand after the seal, or in its place")
        count = COUNT.unpack_from(seal, LENGTH.size)[0]
        if count != last:
            raise TapeCorrupt(
                min(count, last) + 1, f"the seal counts {count} records and {last} are there"
            )
        if seal != encode_seal(last, self.chain.tip, self.hasher):
            raise TapeCorrupt(last, "the seal does not fit: it, this record or the header changed")
        self.ended = "sealed"

    def _is_blank(self, begin: bytes) -> bool:
        """Whether zeros alone follow: room that a disk gave a file before the power went."""
        piece = begin
        while piece:
            if any(piece):
                return False
            piece = self._file.read(READ_AHEAD_BYTES)
        return True

    def _read_header(self) -> Header:
        fixed = self._file.read(len(MAGIC) + 2 + LENGTH.size)
        if fixed[: len(MAGIC)] != MAGIC or len(fixed) < len(MAGIC) + 2 + LENGTH.size:
            raise TapeCorrupt(1, f"{self._path} does not begin as a tape file does")
        version = int.from_bytes(fixed[len(MAGIC) : len(MAGIC) + 2], "big")
        if version != VERSION:
            raise TapeCorrupt(1, f"tape file version {version}; this build reads {VERSION}")
        length = LENGTH.unpack(fixed[-LENGTH.size :])[0]
        body = self._file.read(length) if length <= HEADER_BYTES_MAX else b""
        try:
            run, store = unpack(body, HEADER_BYTES_MAX)
            header = Header(checked(run, "run"), store)
            if not isinstance(store, str) or encode_header(header) != fixed + body:
                raise ValueError("not in canonical form")
        except (Unreadable, BadName, TypeError, ValueError) as error:
            raise TapeCorrupt(1, f"the header of {self._path} cannot be read ({error})") from None
        self._took(fixed, body)
        return header

    def _took(self, prefix: bytes, rest: bytes) -> None:
        self._unhashed += prefix, rest
        self.offset += len(prefix) + len(rest)
        if len(self._unhashed) >= HASHED_AT_ONCE:
            self._hash()

    def _hash(self) -> None:
        self._hasher.update(b"".join(self._unhashed))
        self._unhashed.clear()


def open_file(path: Path) -> BinaryIO:
    """The file, to be read; raises PlaceUnknown with the system's reason."""
    try:
        return path.open("rb", buffering=READ_AHEAD_BYTES)
    except OSError as error:
        raise PlaceUnknown(f"tape file {path}: {error.strerror or error}") from None
