"""Opens the store at an address. The one place that knows all bodies of the port."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from decodiloco.errors import ConfigInvalid
from decodiloco.store.blobs import BlobStore, hide_credentials


def open_store(url: str, endpoint: str | None = None) -> BlobStore:
    """The store at `memory://name`, `file:///folder` or `s3://bucket/prefix`.

    `endpoint` is the address of an S3 server that is not AWS. Raises ConfigInvalid for any other
    address: an unknown place never falls back to a default one.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("memory", "file", "s3"):
        raise ConfigInvalid(
            f"store {hide_credentials(url)!r}: use memory://name, file:///folder "
            "or s3://bucket/prefix"
        )
    if endpoint is not None and scheme != "s3":
        shown = hide_credentials(url)
        raise ConfigInvalid(f"store {shown!r} has no endpoint; remove store_endpoint or use s3://")
    if scheme == "memory":
        from decodiloco.store.memory import memory_store

        return memory_store(rest)
    if scheme == "file":
        from decodiloco.store.local import LocalStore

        if not rest.startswith("/"):
            shown = hide_credentials(url)
            raise ConfigInvalid(f"store {shown!r}: a folder needs its full path, file:///folder")
        return LocalStore(Path(unquote(rest)))
    from decodiloco.store.s3 import S3Store

    return S3Store(url, endpoint)
