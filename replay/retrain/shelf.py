"""The blobs that a rerun makes, held in memory while they are needed, before the tape's store.

What was not made here is read from the store that the tape names; nothing is written there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from decodiloco.store.blobs import BlobStore, Part, check_range
from decodiloco.store.tensors import Encoded, read_tensors


class Shelf:
    """A store in front of a store: puts stay here, until they are dropped."""

    def __init__(self, behind: BlobStore) -> None:
        self.url = behind.url
        self.behind = behind
        self._blobs: dict[str, memoryview] = {}

    def put(self, key: str, parts: Sequence[Part]) -> None:
        self._blobs[key] = memoryview(b"".join(parts))

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        blob = self._blobs.get(key)
        if blob is None:
            return self.behind.read(key, start, stop, anew)
        check_range(key, start, stop, len(blob))
        return blob[start:stop]

    def size(self, key: str) -> int | None:
        blob = self._blobs.get(key)
        return self.behind.size(key) if blob is None else len(blob)

    def keys(self, prefix: str) -> list[str]:
        made = [key for key in self._blobs if key.startswith(prefix)]
        return sorted({*made, *self.behind.keys(prefix)})

    def delete(self, key: str) -> None:
        raise AssertionError(f"a rerun deletes nothing: {key}")

    def drop(self, key: str) -> None:
        """Forgets a blob that was made here; one that was not is passed over."""
        self._blobs.pop(key, None)

    @property
    def bytes(self) -> int:
        """How many bytes are held now."""
        return sum(len(blob) for blob in self._blobs.values())

    def close(self) -> None:
        """Forgets all that was made here; the store behind stays open."""
        self._blobs.clear()


class OneBlob:
    """Only what was just encoded, under any key: to read it back as whoever stores it would."""

    def __init__(self, encoded: Encoded) -> None:
        self._blob = memoryview(b"".join(encoded.parts))

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        """Exactly these bytes."""
        return self._blob[start:stop]


def tensors_of(encoded: Encoded) -> dict[str, npt.NDArray[np.float32]]:
    """The float32 tensors of a blob, as a reader of it gets them."""
    return read_tensors(OneBlob(encoded), "made here", encoded.manifest)
