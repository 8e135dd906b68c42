"""Blobs in a folder, one file each: written aside, made durable, then linked to their name.

A link appears at once or not at all and never replaces a file, so no reader and no crash can
show a part of a blob. What a killed writer leaves is a file whose name no key can have.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from decodiloco.errors import BlobMissing, StoreDenied, StoreUnreachable
from decodiloco.store.blobs import (
    Body,
    Part,
    check_range,
    check_same,
    checked_key,
    checked_prefix,
    is_key,
)

MAPPED_BYTES_MIN = 4 * 1024 * 1024
"""Shorter ranges are copied: each mapping holds a file open for as long as it is looked at."""

WRITE_BYTES_MAX = 64 * 1024 * 1024

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


class LocalStore:
    """A store in a folder of this machine, or of a file system that several machines share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()
        self._durable_folders: set[Path] = set()

    def put(self, key: str, parts: Sequence[Part]) -> None:
        path = self._path(key)
        body = Body(parts)
        with self._troubles(f"cannot take blob {key}"):
            self._make(path.parent)
            held_bytes = _size(path)
            if held_bytes is None:
                held_bytes = _write(path, body)
            # Also when another process wrote it: its name may not have reached the disk yet.
            _sync_folder(path.parent)
        check_same(key, held_bytes, body.nbytes)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        path = self._path(key)
        with self._troubles(f"cannot give blob {key}"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError):
                raise BlobMissing(f"blob {key} is not in {self.url}") from None
            try:
                status = os.fstat(descriptor)
                if not S_ISREG(status.st_mode):
                    raise BlobMissing(f"blob {key} is not in {self.url}")
                check_range(key, start, stop, status.st_size)
                if stop - start >= MAPPED_BYTES_MIN:
                    return _mapped(descriptor, start, stop)
                return _copied(descriptor, start, stop)
            finally:
                os.close(descriptor)

    def size(self, key: str) -> int | None:
        with self._troubles(f"cannot look for blob {key}"):
            return _size(self._path(key))

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        with self._troubles(f"cannot list {prefix}"):
            top = self.folder / checked_prefix(prefix)
            for folder, _, names in os.walk(top, onerror=_unless_missing):
                paths = (Path(folder) / name for name in names)
                keys = (path.relative_to(self.folder).as_posix() for path in paths)
                found += [
                    key for key in keys if is_key(key) and _size(self.folder / key) is not None
                ]
        return sorted(found)

    def delete(self, key: str) -> None:
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with self._troubles(f"cannot delete blob {key}"), gone:
            self._path(key).unlink()  # its folder stays: others put into it at any moment

    def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> Path:
        return self.folder / checked_key(key)

    def _make(self, folder: Path) -> None:
        """Makes a folder and all above it, and their names durable, once in this store's life."""
        if folder in self._durable_folders:
            return
        if folder.parent != folder:
            self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        if os.access(folder.parent, os.R_OK):
            _sync_folder(folder.parent)
        self._durable_folders.add(folder)

    @contextmanager
    def _troubles(self, what: str) -> Iterator[None]:
        """Says what the file system said, and what to do about it."""
        try:
            yield
        except OSError as error:
            reason = f"store {self.url} {what}: {error.strerror or error}"
            if error.errno in _FULL:
                raise StoreUnreachable(f"{reason}; free some space, then go on") from error
            if error.errno in _DENIED:
                raise StoreDenied(f"{reason}; let this user write to the folder") from error
            raise StoreUnreachable(reason) from error


def _unless_missing(error: OSError) -> None:
    """A walk's error, but for a folder that was never made."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _size(path: Path) -> int | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if S_ISREG(status.st_mode) else None


def _write(path: Path, body: Body) -> int:
    """Writes the blob aside and links it; returns the size of whichever blob has the name now."""
    aside = path.parent / f".tmp-{secrets.token_hex(8)}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            for view in body:
                written = 0
                while written < view.nbytes:
                    written += os.write(descriptor, view[written : written + WRITE_BYTES_MAX])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return _name(aside, path, body.nbytes)
    finally:
        aside.unlink(missing_ok=True)


def _name(aside: Path, path: Path, size_bytes: int) -> int:
    """Gives the finished file its name, unless another writer was first."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return path.stat().st_size
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # No hard links here. A rename also shows the whole blob or none; it may replace a blob
        # of the same key, which has the same bytes.
        aside.rename(path)
    return size_bytes


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems sync names by themselves
            raise
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, start: int, stop: int) -> memoryview:
    """The range as a view of the file itself; the mapping ends when nobody looks at it."""
    before = start % mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(
        descriptor, before + stop - start, access=mmap.ACCESS_READ, offset=start - before
    )
    return memoryview(mapping)[before:]


def _copied(descriptor: int, start: int, stop: int) -> bytes:
    pieces = []
    while start < stop:
        piece = os.pread(descriptor, stop - start, start)
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)
