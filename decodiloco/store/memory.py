"""Blobs in a dictionary: the reference body of the store, shared by all threads of the process."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from decodiloco.errors import BlobMissing
from decodiloco.store.blobs import (
    Body,
    Part,
    check_range,
    check_same,
    checked_key,
    checked_prefix,
)
from streams.subjects import checked

_stores: dict[str, MemoryStore] = {}
_stores_lock = Lock()


class MemoryStore:
    """A store that lives as long as the process."""

    def __init__(self, name: str) -> None:
        self.url = f"memory://{checked(name, 'store')}"
        self._blobs: dict[str, bytes] = {}
        self._lock = Lock()

    def put(self, key: str, parts: Sequence[Part]) -> None:
        blob = b"".join(Body(parts))
        with self._lock:
            held = self._blobs.setdefault(checked_key(key), blob)
        check_same(key, len(held), len(blob))

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        blob = self._blobs.get(checked_key(key))
        if blob is None:
            raise BlobMissing(f"blob {key} is not in {self.url}")
        check_range(key, start, stop, len(blob))
        return memoryview(blob)[start:stop]

    def size(self, key: str) -> int | None:
        blob = self._blobs.get(checked_key(key))
        return None if blob is None else len(blob)

    def keys(self, prefix: str) -> list[str]:
        checked_prefix(prefix)
        with self._lock:
            return sorted(key for key in self._blobs if key.startswith(prefix))

    def delete(self, key: str) -> None:
        with self._lock:
            self._blobs.pop(checked_key(key), None)

    def close(self) -> None:
        """Nothing is held open: whoever opens this name again finds the same blobs."""


def memory_store(name: str) -> MemoryStore:
    """The one store of this name in the process."""
    with _stores_lock:
        if name not in _stores:
            _stores[name] = MemoryStore(name)
        return _stores[name]
