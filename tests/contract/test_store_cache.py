"""A region's cache of the store: nginx on the file of deploy/geo, before a real S3 server.

Between the two stands a proxy that counts what the store sends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreDenied, StoreUnreachable
from decodiloco.local.s3_server import S3Server
from decodiloco.store import s3
from decodiloco.store.header import CHUNK_BYTES
from decodiloco.store.s3 import Access, S3Store
from decodiloco.store.tensors import encode_tensors, read_tensors
from streams.manifest import Manifest
from tests.contract.proxy import Proxy
from tests.contract.test_doors_tls import certify
from tests.geo.servers import free_ports
from tests.geo.store_cache import Asked, Nginx, StoreCache, missing

MIB = 1024 * 1024
QUESTION_BYTES_MAX = 4096
STALE_SECONDS = 2.1  # kept for a second; nginx counts whole ones
WHY_NOT = missing()

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]


class Link:
    """The line to the store, a long one if need be: what came over it since it was last asked."""

    def __init__(self, proxy: Proxy) -> None:
        self.seconds = 0.0
        self._bytes = 0
        self._proxy = proxy
        proxy.hardship = self._passed

    def _passed(self, head: bytes, piece: bytes) -> bytes:
        self._bytes += len(piece)
        if piece.startswith(b"HTTP/1.1"):
            self._proxy.closed.wait(self.seconds)
        return piece

    def crossed(self) -> int:
        crossed, self._bytes = self._bytes, 0
        return crossed


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def link(proxy: Proxy) -> Link:
    return Link(proxy)


@pytest.fixture
def cache(proxy: Proxy, tmp_path: Path) -> Iterator[StoreCache]:
    (port,) = free_ports(1)
    store = proxy.endpoint.removeprefix("http://")
    with StoreCache(tmp_path / "cache", f"127.0.0.1:{port}", store) as cache:
        yield cache


@pytest.fixture
def url(s3_server: S3Server) -> str:
    return f"{s3_server.url}/cached-{secrets.token_hex(6)}"


@pytest.fixture
def readers(cache: StoreCache, url: str) -> Iterator[tuple[S3Store, S3Store]]:
    """Two learners of the region, each with connections of its own."""
    first, second = (S3Store(url, cache.endpoint) for _ in range(2))
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def hub(s3_server: S3Server, url: str) -> Iterator[S3Store]:
    """A syncer, beside the store."""
    store = S3Store(url, s3_server.endpoint)
    yield store
    store.close()


def merged(elements: int) -> tuple[str, Manifest, tuple[bytes | memoryview, ...]]:
    """A merged fragment of so many parameters: key, manifest and parts."""
    values = np.frombuffer(secrets.token_bytes(4 * elements), np.uint32) & 0x3FFFFFFF
    encoded = encode_tensors({"w": values.view(np.float32)}, "fp32")
    key = f"geo/global/f1/7-{encoded.manifest.digest.hex()[:16]}"
    return key, encoded.manifest, encoded.parts


def await_stale(cache: StoreCache) -> None:
    """Until what is kept must be asked about again."""
    kept_seconds = max(path.stat().st_mtime for path in cache.entries())
    while time.time() < kept_seconds + STALE_SECONDS:
        Event().wait(0.05)


def test_what_two_read_at_once_crosses_the_line_once(
    readers: tuple[S3Store, S3Store], hub: S3Store, link: Link
) -> None:
    key, manifest, parts = merged(5 * CHUNK_BYTES // 8)  # two chunks and a half
    hub.put(key, parts)
    link.crossed()
    link.seconds = 0.3  # so that the second asks while the first's bytes are on their way

    with ThreadPoolExecutor(2) as both:
        mine, other = both.map(lambda store: read_tensors(store, key, manifest)["w"], readers)

    assert mine.tobytes() == other.tobytes()
    assert manifest.bytes < link.crossed() < 1.05 * manifest.bytes


def test_a_later_reader_costs_a_question_and_no_bytes(
    readers: tuple[S3Store, S3Store], hub: S3Store, link: Link, cache: StoreCache
) -> None:
    key, manifest, parts = merged(MIB)
    hub.put(key, parts)
    read_tensors(readers[0], key, manifest)
    await_stale(cache)
    link.crossed()

    read_tensors(readers[1], key, manifest)

    assert 0 < link.crossed() < QUESTION_BYTES_MAX
    assert [(each.how, each.store_status) for each in asked_of(cache)[-2:]] == [
        ("REVALIDATED", "304"),
        ("REVALIDATED", "304"),
    ]


def test_a_reader_whom_the_store_denies_gets_nothing_from_the_cache(
    readers: tuple[S3Store, S3Store], hub: S3Store, s3_server: S3Server, cache: StoreCache, url: str
) -> None:
    key, manifest, parts = merged(MIB)
    hub.put(key, parts)
    read_tensors(readers[0], key, manifest)
    await_stale(cache)

    stranger = S3Store(url, cache.endpoint, Access(s3_server.key, secrets.token_hex(20)))
    with pytest.raises(StoreDenied):
        read_tensors(stranger, key, manifest)
    stranger.close()

    assert read_tensors(readers[0], key, manifest)["w"].size == MIB


def test_what_was_missing_is_found_once_it_is_there_and_missed_once_it_is_swept(
    readers: tuple[S3Store, S3Store], hub: S3Store, cache: StoreCache
) -> None:
    key, manifest, parts = merged(1000)
    with pytest.raises(BlobMissing):
        read_tensors(readers[0], key, manifest)
    assert readers[0].size(key) is None

    hub.put(key, parts)
    assert readers[0].size(key) == manifest.bytes
    assert read_tensors(readers[0], key, manifest)["w"].size == 1000

    hub.delete(key)
    await_stale(cache)
    with pytest.raises(BlobMissing):
        read_tensors(readers[1], key, manifest)


@pytest.mark.parametrize("kind", ["delta/e1/3/f0-24", "checkpoint/e1/24"])
@pytest.mark.parametrize("size_bytes", [1000, s3.SINGLE_BYTES_MAX + 5])
def test_a_put_through_it_is_in_the_store_when_it_is_answered(
    readers: tuple[S3Store, S3Store], hub: S3Store, kind: str, size_bytes: int
) -> None:
    key, blob = f"geo/{kind}-0123456789abcdef", secrets.token_bytes(size_bytes)

    readers[0].put(key, [blob])
    assert hub.read(key, 0, size_bytes) == blob

    readers[1].put(key, [blob])  # is there already, and says so
    with pytest.raises(BlobCorrupt, match="put again with 3"):
        readers[1].put(key, [b"not"])
    assert readers[0].keys("geo/") == hub.keys("geo/") == [key]
    readers[0].delete(key)
    assert hub.size(key) is None


def test_only_what_several_learners_read_is_kept(
    readers: tuple[S3Store, S3Store], cache: StoreCache
) -> None:
    kinds = ("opening/", "global/f3/0-", "checkpoint/e1/24-", "delta/e1/3/f0-24-", "outer/f0/1-")
    for kind in kinds:
        readers[0].put(f"geo/{kind}0123456789abcdef", [b"some"])
        assert readers[0].size(f"geo/{kind}0123456789abcdef") == 4
        readers[0].read(f"geo/{kind}0123456789abcdef", 1, 3)

    assert len(cache.entries()) == 3
    assert {each.how for each in asked_of(cache) if each.method == "HEAD"} == {"BYPASS", "-"}


@pytest.mark.parametrize("place", ["header", "chunk"])
def test_bytes_broken_in_the_cache_are_told_and_got_past(
    readers: tuple[S3Store, S3Store], hub: S3Store, cache: StoreCache, link: Link, place: str
) -> None:
    key, manifest, parts = merged(MIB)
    hub.put(key, parts)
    good = read_tensors(readers[0], key, manifest)["w"]
    spoil(cache, bytes(parts[0][:64] if place == "header" else parts[1][-64:]))

    again = read_tensors(readers[1], key, manifest)["w"]

    assert again.tobytes() == good.tobytes()
    assert "BYPASS" in {each.how for each in asked_of(cache) if each.method == "GET"}
    await_stale(cache)
    link.crossed()
    read_tensors(readers[0], key, manifest)
    assert link.crossed() < QUESTION_BYTES_MAX, (
        "what came past the cache is kept in the place of what was broken"
    )


@pytest.mark.parametrize("authority", ["", "stranger"])
def test_a_store_behind_https_is_reached_if_its_certificate_is_believed(
    s3_server: S3Server, hub: S3Store, url: str, tmp_path: Path, authority: str
) -> None:
    key, manifest, parts = merged(1000)
    hub.put(key, parts)
    for place in (tmp_path, tmp_path / "stranger"):
        place.mkdir(exist_ok=True)
        certify(place)
    near, far = free_ports(2)
    behind = f"""server {{
      listen 127.0.0.1:{far} ssl;
      ssl_certificate {tmp_path}/server.pem;
      ssl_certificate_key {tmp_path}/server.key;
      location / {{ proxy_pass {s3_server.endpoint}; proxy_set_header Host $http_host; }}
    }}"""
    trusted = tmp_path / authority / "ca.pem"
    with (
        Nginx(tmp_path / "https", behind),
        StoreCache(tmp_path / "cache", f"127.0.0.1:{near}", f"127.0.0.1:{far}", trusted=trusted),
        closing(S3Store(url, f"http://localhost:{near}", limit_seconds=10.0)) as reader,
    ):
        if not authority:
            assert read_tensors(reader, key, manifest)["w"].size == 1000
        else:
            with pytest.raises(StoreUnreachable, match="Bad Gateway"):
                read_tensors(reader, key, manifest)


def asked_of(cache: StoreCache) -> list[Asked]:
    """All that it was asked. nginx notes a request after its last byte has gone, and before it
    turns to the next one: so we send that.
    """
    with suppress(HTTPError):
        urlopen(cache.endpoint, timeout=10)
    return [each for each in cache.asked() if each.path != "/"]


def spoil(cache: StoreCache, part: bytes) -> None:
    """Changes a byte of these, in whatever the cache keeps of them."""
    for path in cache.entries():
        kept = bytearray(path.read_bytes())
        at = kept.find(part)
        if at >= 0:
            kept[at] ^= 1
            path.write_bytes(kept)
            return
    raise AssertionError("the cache does not keep these bytes")
