"""What the services of the world hold: one tape, an inbox a region, one store. Pure lists.

Knows facts and bytes; must not know links, processes or time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from decodiloco.errors import BlobMissing, StoreUnreachable
from decodiloco.store.blobs import Body, Part, check_range, check_same, checked_key
from decodiloco.store.tensors import read_tensors
from replay.world.model import Arrays
from replay.world.network import Shelf
from streams.envelope import Envelope, Source
from streams.inbox import Letter
from streams.manifest import Manifest
from streams.tape import BATCH_MAX, Outcome, Refused, Stored

DECODED_MAX = 32


class WorldTape:
    """The records that stand, and a journal of what was sent and of what was acknowledged.

    `observe` is told each record in the moment in which it is stored.
    """

    def __init__(self, observe: Callable[[Envelope], None]) -> None:
        self.shelf: Shelf[Envelope] = Shelf()
        self.attempted: dict[bytes, int] = {}
        self.acknowledged: dict[bytes, int] = {}
        self._observe = observe

    @property
    def records(self) -> list[Envelope]:
        """All that stands, in order."""
        return self.shelf.items

    def append(self, batch: Sequence[Envelope]) -> Outcome:
        """All of a batch at the tape's end, or nothing."""
        assert 1 <= len(batch) <= BATCH_MAX
        if batch[0].position != len(self.records) + 1:
            return Refused(f"the tape ends at {len(self.records)}")
        for envelope in batch:
            self.records.append(envelope)
            self._observe(envelope)
        self.shelf.grown()
        return Stored(batch[-1].position)

    def attempt(self, batch: Sequence[Envelope]) -> None:
        """A writer is about to send this."""
        for envelope in batch:
            self.attempted.setdefault(envelope.digest, envelope.position)

    def acknowledge(self, batch: Sequence[Envelope]) -> None:
        """A writer was told that this stands on the tape."""
        for envelope in batch:
            self.acknowledged[envelope.digest] = envelope.position


class WorldInbox:
    """The letters of one region."""

    def __init__(self, region: str, life: str) -> None:
        self.region, self.life = region, life
        self.shelf: Shelf[Letter] = Shelf()

    def put(self, speaker: str, kind: str, payload: bytes) -> int:
        """A message is stored; its sequence."""
        sequence = len(self.shelf.items) + 1
        source = Source(self.region, self.life, sequence)
        self.shelf.items.append(Letter(source, speaker, kind, payload))
        self.shelf.grown()
        return sequence


class WorldStore:
    """Blobs in a dictionary, and the trouble that a store can make, drawn by shares.

    `spoil` changes what is stored: "corrupt" flips a bit of a delta, "missing" drops it.
    """

    def __init__(self, random: Random, hit: Callable[[str], None]) -> None:
        self.url = "memory://world"
        self.blobs: dict[str, bytes] = {}
        self.error_share = 0.0
        self.spoil_shares: dict[str, float] = {}
        self.spoiled: dict[str, str] = {}
        self.slowness = 1.0
        self.deleting: Callable[[str], None] = lambda key: None  # told before a blob goes
        self._random = random
        self._hit = hit
        self._decoded: dict[str, Arrays] = {}

    def put(self, key: str, parts: Sequence[Part]) -> None:
        """Stores a blob once. Raises StoreUnreachable as often as it is told to."""
        self._may_fail(key)
        blob = b"".join(Body(parts))
        if checked_key(key) in self.blobs or key in self.spoiled:
            check_same(key, len(self.blobs.get(key, blob)), len(blob))
            return
        self.blobs[key] = blob
        if "/delta/" in key:
            self._spoil(key)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        """Exactly these bytes."""
        self._may_fail(key)
        blob = self.blobs.get(key)
        if blob is None:
            raise BlobMissing(f"blob {key} is not in {self.url}")
        check_range(key, start, stop, len(blob))
        return memoryview(blob)[start:stop]

    def size(self, key: str) -> int | None:
        """How many bytes it has; None when it is not there."""
        blob = self.blobs.get(key)
        return None if blob is None else len(blob)

    def keys(self, prefix: str) -> list[str]:
        """What is there, and readable."""
        return sorted(key for key in self.blobs if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Takes a blob away. Raises StoreUnreachable as often as it is told to."""
        self._may_fail(key)
        self.deleting(key)
        self.blobs.pop(checked_key(key), None)
        self._decoded.pop(key, None)

    def tensors(self, key: str, manifest: Manifest) -> Arrays:
        """A merged fragment, as `read_tensors` gives it; nobody may write into it.

        All learners read the same blobs, which never change: each is decoded once.
        """
        self._may_fail(key)
        if key not in self._decoded:
            self._decoded[key] = read_tensors(QuietStore(self), key, manifest)
            for array in self._decoded[key].values():
                array.flags.writeable = False
            while len(self._decoded) > DECODED_MAX:
                del self._decoded[next(iter(self._decoded))]
        return self._decoded[key]

    def close(self) -> None:
        """Nothing is held open."""

    def _may_fail(self, key: str) -> None:
        if self.error_share and self._random.random() < self.error_share:
            self._hit("the store answers with an error")
            raise StoreUnreachable(f"blob {key}: 503")

    def _spoil(self, key: str) -> None:
        for how in sorted(self.spoil_shares):
            if self._random.random() < self.spoil_shares[how]:
                self.spoiled[key] = how
                if how == "missing":
                    del self.blobs[key]
                else:
                    blob = bytearray(self.blobs[key])
                    blob[self._random.randrange(len(blob))] ^= 1 << self._random.randrange(8)
                    self.blobs[key] = bytes(blob)
                return


class QuietStore:
    """What lies in the store, for checkers: no trouble, and nothing is stored."""

    def __init__(self, store: WorldStore) -> None:
        self.url = store.url
        self._blobs = store.blobs

    def put(self, key: str, parts: Sequence[Part]) -> None:
        raise AssertionError(f"a checker stores nothing: {key}")

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        blob = self._blobs.get(key)
        if blob is None:
            raise BlobMissing(f"blob {key} is not in {self.url}")
        check_range(key, start, stop, len(blob))
        return memoryview(blob)[start:stop]

    def size(self, key: str) -> int | None:
        blob = self._blobs.get(key)
        return None if blob is None else len(blob)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._blobs if key.startswith(prefix))

    def delete(self, key: str) -> None:
        raise AssertionError(f"a checker deletes nothing: {key}")

    def close(self) -> None:
        """Nothing is held open."""


class SeenStore:
    """The store as one process sees it in one moment: behind links that may be cut."""

    def __init__(self, store: WorldStore, is_open: Callable[[], bool]) -> None:
        self.url = store.url
        self._store, self._is_open = store, is_open

    def put(self, key: str, parts: Sequence[Part]) -> None:
        self._check(key)
        self._store.put(key, parts)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        self._check(key)
        return self._store.read(key, start, stop, anew)

    def size(self, key: str) -> int | None:
        self._check(key)
        return self._store.size(key)

    def keys(self, prefix: str) -> list[str]:
        self._check(prefix)
        return self._store.keys(prefix)

    def delete(self, key: str) -> None:
        self._check(key)
        self._store.delete(key)

    def close(self) -> None:
        """Nothing is held open."""

    def _check(self, key: str) -> None:
        if not self._is_open():
            raise StoreUnreachable(f"blob {key}: the store does not answer")
