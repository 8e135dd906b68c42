"""A tape file being written: append-only, durable when it says so, continued after any death.

One writer at a time holds a lock on the file; a reader needs none, as it trusts a seal only.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from replay.errors import TapeFileBusy, Unwritable
from replay.tape_file import Header, Scan, encode_header
from streams.chain import Chain
from streams.codec import encode_envelope
from streams.envelope import Envelope
from streams.framing import encode_record, encode_seal


class TapeWriter:
    """The open end of a tape file. Use `open_writer`; call from one thread at a time.

    `chain` is the end of what stands in the file, `torn_bytes` the size of a torn tail after
    it. A seal or a torn tail is cut away by the first write, so that a file which is only looked
    at stays as it is.
    """

    def __init__(self, file: BinaryIO, path: Path, scan: Scan) -> None:
        self.path = path
        self.header = scan.header
        self.chain: Chain = scan.chain
        tail_bytes = os.fstat(file.fileno()).st_size - scan.offset
        self.torn_bytes = tail_bytes if scan.ended == "torn" else 0
        self._file = file
        self._offset = scan.offset
        self._hasher: blake3 = scan.hasher
        self._is_sealed = scan.ended == "sealed"
        self._is_at_end = False

    def append(self, envelopes: Sequence[Envelope]) -> None:
        """Writes records that follow the last one, or raises ChainBroken before any is written."""
        chain = self.chain
        pieces = []
        for envelope in envelopes:
            chain = chain.then(envelope)
            pieces.append(encode_record(encode_envelope(envelope)))
        self._write(b"".join(pieces))
        self.chain = chain

    def sync(self) -> None:
        """Returns when all that was appended is durable: even a power cut leaves it."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def seal(self) -> None:
        """Writes the seal, makes all durable and closes. Only a sealed file can be read."""
        if not self._is_sealed:
            self._write(encode_seal(self.chain.position, self.chain.tip, self._hasher))
            self.sync()
        self.close()

    def close(self) -> None:
        """Lets go of the file as it is; without `seal` it can be continued, but not read."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            if not self._is_at_end:
                self._file.truncate(self._offset)
                self._file.seek(self._offset)
                self._is_at_end = True
                self._is_sealed = False
            self._file.write(data)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self._hasher.update(data)


def open_writer(path: Path, header: Header) -> TapeWriter:
    """Opens a tape file at its end, and makes it first when it is not there.

    An existing file is checked from its first byte on; a torn tail, the part of a record that
    a killed recorder left, is no fault. Raises TapeCorrupt or ChainBroken for
    anything else that is wrong with it, TapeFileBusy while another process records into it, and
    Unwritable when the disk says no.
    """
    try:
        if not path.exists():
            _create(path, header)
        if not path.is_file():
            raise Unwritable(f"tape file {path}: this is no file; name another one with -o")
        file = path.open("r+b")
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        _lock(file, path)
        scan = Scan(file, path)
        for _ in scan.records():
            pass
        return TapeWriter(file, path, scan)
    except OSError as error:
        file.close()
        raise _unwritable(path, error) from None
    except BaseException:
        file.close()
        raise


def _create(path: Path, header: Header) -> None:
    """Gives the file its name only when its header is whole, so that no header is ever torn."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as file:
            file.write(encode_header(header))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        with suppress(OSError):
            aside.unlink()


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TapeFileBusy(
            f"tape file {path}: another process is recording into it; stop that one, or name "
            "another file with -o"
        ) from None


def _unwritable(path: Path, error: OSError) -> Unwritable:
    return Unwritable(f"tape file {path}: {error.strerror or error}")
