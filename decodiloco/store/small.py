"""Small blobs that are no tensors (openings, reports, snapshots): whole, in msgpack, checked.

Knows the store's port and manifests; must not know what the bytes say.
"""

from __future__ import annotations

from collections.abc import Callable

from blake3 import blake3

from decodiloco.errors import BlobCorrupt
from decodiloco.store.blobs import BlobStore
from streams.manifest import Manifest

SMALL_BYTES_MAX = 64 * 1024 * 1024


def put_small(store: BlobStore, key_of: Callable[[Manifest], str], payload: bytes) -> Manifest:
    """Stores the payload under the key of its manifest, whose digest is over all bytes."""
    assert len(payload) <= SMALL_BYTES_MAX, len(payload)
    manifest = Manifest(bytes=len(payload), digest=blake3(payload).digest(), codec="msgpack")
    store.put(key_of(manifest), [payload])
    return manifest


def read_small(store: BlobStore, key: str, manifest: Manifest) -> bytes:
    """The bytes that the manifest names.

    Raises BlobMissing, or BlobCorrupt when what is stored is not what was named.
    """
    if manifest.bytes > SMALL_BYTES_MAX:
        raise BlobCorrupt(f"blob {key} is named with {manifest.bytes} bytes; no small blob is")
    for anew in (False, True):
        payload = bytes(store.read(key, 0, manifest.bytes, anew))
        if blake3(payload).digest() == manifest.digest:
            return payload
    raise BlobCorrupt(
        f"blob {key} in {store.url} does not match its digest {manifest.digest.hex()[:16]}"
    )
