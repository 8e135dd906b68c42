"""Small blobs come back as they were named, or not at all."""

from __future__ import annotations

import secrets

import pytest
from blake3 import blake3

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.store.blobs import Part
from decodiloco.store.memory import MemoryStore
from decodiloco.store.small import SMALL_BYTES_MAX, put_small, read_small
from streams.manifest import Manifest


def key_of(manifest: Manifest) -> str:
    return f"run/report/1-{manifest.digest.hex()[:16]}"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(f"small-{secrets.token_hex(6)}")


@pytest.mark.parametrize("payload", [b"", b"a report", bytes(100_000)])
def test_a_payload_comes_back_under_its_manifest(store: MemoryStore, payload: bytes) -> None:
    manifest = put_small(store, key_of, payload)

    assert manifest == Manifest(
        bytes=len(payload), digest=blake3(payload).digest(), codec="msgpack"
    )
    assert read_small(store, key_of(manifest), manifest) == payload


def test_the_same_payload_again_is_the_same_blob(store: MemoryStore) -> None:
    assert put_small(store, key_of, b"a report") == put_small(store, key_of, b"a report")


@pytest.mark.parametrize("stored", [b"a rep0rt", b"a repor", b"", b"b report and more"])
def test_altered_or_shortened_bytes_are_noticed(store: MemoryStore, stored: bytes) -> None:
    manifest = Manifest(bytes=8, digest=blake3(b"a report").digest(), codec="msgpack")
    store.put(key_of(manifest), [stored])

    with pytest.raises(BlobCorrupt, match=key_of(manifest)):
        read_small(store, key_of(manifest), manifest)


def test_bytes_that_a_cache_has_broken_are_read_again_past_it() -> None:
    class Cached(MemoryStore):
        def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
            return super().read(key, start, stop) if anew else bytes(stop - start)

    store = Cached("small-cached")
    manifest = put_small(store, key_of, b"a report")

    assert read_small(store, key_of(manifest), manifest) == b"a report"


def test_a_missing_blob_is_named(store: MemoryStore) -> None:
    manifest = Manifest(bytes=8, digest=bytes(32), codec="msgpack")

    with pytest.raises(BlobMissing, match=key_of(manifest)):
        read_small(store, key_of(manifest), manifest)


def test_a_manifest_cannot_make_us_read_more_than_a_small_blob(store: MemoryStore) -> None:
    manifest = Manifest(bytes=SMALL_BYTES_MAX + 1, digest=bytes(32), codec="msgpack")

    with pytest.raises(BlobCorrupt, match="no small blob is"):
        read_small(store, key_of(manifest), manifest)
