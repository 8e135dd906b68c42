"""The port to stored bytes: put a blob once, read any range of it, ask for its size.

A store knows keys and bytes. It must not know tensors, runs or digests: what it returns is
checked by whoever named it. A store is synchronous and may be called from any thread, but never
from an event loop's own thread.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol, overload

from decodiloco.errors import BlobCorrupt
from streams.errors import BadName

KEY_BYTES_MAX = 512
_SEGMENT = r"[a-z0-9][a-z0-9_-]*"
_KEY = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*")

Part = bytes | memoryview
Late = tuple[int, Callable[[], Part]]
"""How many bytes a part has, and how to get it."""


class BlobStore(Protocol):
    """Immutable blobs by key. The bodies: memory, a local folder, an S3 bucket."""

    url: str
    """Where it is, without credentials; `open_store` opens the same place from it."""

    def put(self, key: str, parts: Sequence[Part]) -> None:
        """Stores the parts, one after another, as one blob. It is durable when this returns.

        A key is written once: the same key again does nothing. Since a key ends in its digest,
        only the sizes are compared, and another size raises BlobCorrupt. A reader sees the whole
        blob or none, whatever happens to the writer.
        """

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        """Exactly `stop - start` bytes; raises BlobMissing, or BlobCorrupt when it is shorter.

        `anew`: past any cache on the way, for a reader whose last bytes were not the blob's.
        """

    def size(self, key: str) -> int | None:
        """How many bytes the blob has; None when it is not there."""

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, which ends in a slash; sorted. Empty if none do.

        Slow where there are many: for restoring and sweeping, never on the hot path.
        """

    def delete(self, key: str) -> None:
        """Takes a blob away; one that is not there is passed over.

        Only a leader's sweep does this, below a horizon that stands on the tape. It need not be
        durable: what a power cut brings back is named by nobody.
        """

    def close(self) -> None:
        """Lets go of connections. What was put stays."""


def checked_key(key: str) -> str:
    """The key itself, if every store can hold it and it cannot lead out of its place."""
    if len(key) > KEY_BYTES_MAX or not _KEY.fullmatch(key):
        raise BadName(
            f"key {key[:80]!r}: use a-z, 0-9, - and _ between single slashes, "
            f"{KEY_BYTES_MAX} characters at most"
        )
    return key


def checked_prefix(prefix: str) -> str:
    """The prefix itself, if it is a key and a slash."""
    if not prefix.endswith("/"):
        raise BadName(f"prefix {prefix[:80]!r}: it must end in a slash")
    return checked_key(prefix[:-1]) + "/"


def is_key(name: str) -> bool:
    """Whether a name found in a store can be a blob's; a killed writer's leavings cannot."""
    return len(name) <= KEY_BYTES_MAX and _KEY.fullmatch(name) is not None


class LateParts(Sequence[Part]):
    """Parts that are got when they are asked for, and not kept: all of them may be too many."""

    def __init__(self, late: Sequence[Late]) -> None:
        self._late = late

    @property
    def sizes(self) -> list[int]:
        """How many bytes each has, without getting it."""
        return [size_bytes for size_bytes, _ in self._late]

    def __len__(self) -> int:
        return len(self._late)

    @overload
    def __getitem__(self, place: int) -> Part: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Part]: ...
    def __getitem__(self, place: int | slice) -> Part | Sequence[Part]:
        if isinstance(place, slice):
            return LateParts(self._late[place])
        return self._late[place][1]()


class Body:
    """Parts laid end to end, as a store takes them. Late ones are got one after another."""

    def __init__(self, parts: Sequence[Part]) -> None:
        if isinstance(parts, LateParts):
            sizes = parts.sizes
        else:
            sizes = [memoryview(part).nbytes for part in parts]
        self._parts = parts
        self._starts = [0, *accumulate(sizes)]
        self.nbytes = self._starts[-1]

    def __iter__(self) -> Iterator[memoryview]:
        for part in self._parts:
            yield memoryview(part).cast("B")

    def cut(self, start: int, stop: int) -> bytes:
        """These bytes, of the parts that hold them."""
        pieces = []
        place = bisect_right(self._starts, start) - 1
        while place < len(self._parts) and self._starts[place] < stop:
            view, origin = memoryview(self._parts[place]).cast("B"), self._starts[place]
            pieces.append(view[max(start - origin, 0) : stop - origin])
            place += 1
        return b"".join(pieces)


def check_same(key: str, held_bytes: int, put_bytes: int) -> None:
    """Passes over a blob that is put again; raises BlobCorrupt when it cannot be the same one."""
    if held_bytes != put_bytes:
        raise BlobCorrupt(
            f"blob {key} is stored with {held_bytes} bytes and was put again with {put_bytes}; "
            "a key names one content only"
        )


def check_range(key: str, start: int, stop: int, held_bytes: int) -> None:
    """Raises BlobCorrupt when the blob ends before the range does."""
    assert 0 <= start <= stop, (start, stop)
    if stop > held_bytes:
        raise BlobCorrupt(f"blob {key} has {held_bytes} bytes; bytes {start} to {stop} were named")


def hide_credentials(url: str) -> str:
    """The address without a user's name and secret, fit for a message."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"
