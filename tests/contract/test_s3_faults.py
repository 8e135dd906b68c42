"""Stores under hardship: cut lines, lost answers, silence, wrong keys, and altered bytes."""

from __future__ import annotations

import itertools
import secrets
import socket
import time
from collections.abc import Iterator

import pytest
from s3fs import S3FileSystem

from decodiloco.errors import BlobCorrupt, StoreDenied, StoreUnreachable
from decodiloco.local.s3_server import S3Server
from decodiloco.store import s3
from decodiloco.store.s3 import Access, S3Store
from decodiloco.store.small import put_small, read_small
from streams.manifest import Manifest
from tests.contract.proxy import Hardship, Proxy

MIB = 1024 * 1024
LIMIT_SECONDS = 3.0


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def url(s3_server: S3Server) -> str:
    return f"{s3_server.url}/faults-{secrets.token_hex(6)}"


@pytest.fixture
def store(proxy: Proxy, url: str) -> Iterator[S3Store]:
    """A store that reaches the server only through the proxy, and has all the time it needs."""
    store = S3Store(url, proxy.endpoint, limit_seconds=60.0)
    yield store
    store.close()


@pytest.fixture
def impatient(proxy: Proxy, url: str) -> Iterator[S3Store]:
    """The same, for hardships that do not end: it gives up soon."""
    store = S3Store(url, proxy.endpoint, limit_seconds=LIMIT_SECONDS)
    yield store
    store.close()


def times(count: int, hardship: Hardship) -> Hardship:
    """The hardship for as many pieces as it changes; after these, none."""
    left = itertools.count(count, -1)
    seen = [next(left)]

    def limited(head: bytes, piece: bytes) -> bytes | None:
        if seen[0] == 0:
            return piece
        spoiled = hardship(head, piece)
        if spoiled != piece:
            seen[0] = next(left)
        return spoiled

    return limited


def cut_body(head: bytes, piece: bytes) -> bytes | None:
    """Lets the head of a reply to GET through, and cuts its body."""
    if not head.startswith(b"GET"):
        return piece
    return piece[: len(piece) // 2] if piece.startswith(b"HTTP/1.1 2") else None


def drop_answer(method: bytes) -> Hardship:
    """The server has done what was asked; nobody hears of it."""

    def drop(head: bytes, piece: bytes) -> bytes | None:
        return None if head.startswith(method) and piece.startswith(b"HTTP/1.1 2") else piece

    return drop


def small_key(manifest: Manifest) -> str:
    return f"run/report/1-{manifest.digest.hex()[:16]}"


def test_an_empty_blob_that_a_cut_put_has_left_is_replaced(store: S3Store) -> None:
    """SeaweedFS 4.48 keeps the name of a PUT whose line was cut, and refuses the next one."""
    store.put("run/delta/a/f0-1", [b""])
    store.put("run/delta/a/f0-1", [b"whole"])
    assert bytes(store.read("run/delta/a/f0-1", 0, 5)) == b"whole"
    with pytest.raises(BlobCorrupt, match="5 bytes and was put again with 3"):
        store.put("run/delta/a/f0-1", [b"not"])


def test_a_body_cut_midway_is_fetched_again(store: S3Store, proxy: Proxy) -> None:
    blob = secrets.token_bytes(3 * MIB)
    store.put("run/blob", [blob])
    proxy.hardship = times(2, cut_body)

    assert store.read("run/blob", 0, len(blob)) == blob


def test_a_body_that_is_always_cut_is_trouble_within_the_limit(
    store: S3Store, impatient: S3Store, proxy: Proxy
) -> None:
    store.put("run/blob", [bytes(MIB)])
    proxy.hardship = cut_body

    with pytest.raises(StoreUnreachable, match="run/blob"):
        impatient.read("run/blob", 0, MIB)


def test_a_put_whose_answer_is_lost_has_happened_once(
    store: S3Store, proxy: Proxy, s3_server: S3Server, url: str
) -> None:
    proxy.hardship = times(1, drop_answer(b"PUT"))

    store.put("run/blob", [b"ours"])

    direct = S3Store(url, s3_server.endpoint)
    assert direct.read("run/blob", 0, 4) == b"ours"
    direct.close()


def test_a_completed_upload_whose_answer_is_lost_has_happened_once(
    store: S3Store, proxy: Proxy
) -> None:
    blob = secrets.token_bytes(s3.SINGLE_BYTES_MAX + 5)
    lost: list[bytes] = []

    def drop_completion(head: bytes, piece: bytes) -> bytes | None:
        # POST ...?uploads begins an upload, POST ...?uploadId=... completes it.
        if head.startswith(b"POST") and b"uploadId" in head and not lost:
            lost.append(piece)
            return None
        return piece

    proxy.hardship = drop_completion
    store.put("run/blob", [blob])

    assert lost
    assert store.read("run/blob", 0, len(blob)) == blob


def test_an_upload_that_fails_is_taken_back_and_nothing_of_it_is_seen(
    store: S3Store, impatient: S3Store, proxy: Proxy, url: str, s3_server: S3Server
) -> None:
    def refuse_second_part(head: bytes, piece: bytes) -> bytes | None:
        return None if b"partNumber=2" in head else piece

    proxy.hardship = refuse_second_part
    with pytest.raises(StoreUnreachable, match="run/blob"):
        impatient.put("run/blob", [bytes(s3.SINGLE_BYTES_MAX + 5)])

    assert store.size("run/blob") is None
    assert unfinished_uploads(s3_server, url) == []


def test_a_server_that_never_answers_is_trouble_within_the_limit(
    impatient: S3Store, proxy: Proxy
) -> None:
    def keep_silent(head: bytes, piece: bytes) -> bytes | None:
        proxy.closed.wait(60.0)
        return None

    proxy.hardship = keep_silent
    begun = time.monotonic()

    with pytest.raises(StoreUnreachable, match="no answer in time"):
        impatient.put("run/blob", [b"x"])

    assert time.monotonic() - begun < 10 * LIMIT_SECONDS


def test_a_slow_server_is_waited_for(store: S3Store, proxy: Proxy) -> None:
    def delay(head: bytes, piece: bytes) -> bytes | None:
        proxy.closed.wait(0.3)
        return piece

    proxy.hardship = delay
    store.put("run/blob", [b"slow"])

    assert store.read("run/blob", 0, 4) == b"slow"


def test_a_dead_endpoint_is_trouble_within_the_limit(url: str, s3_server: S3Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    store = S3Store(url, f"http://127.0.0.1:{port}", limit_seconds=1.0)
    begun = time.monotonic()

    for call in (
        lambda: store.put("run/blob", [b"x"]),
        lambda: store.read("run/blob", 0, 1),
        lambda: store.size("run/blob"),
    ):
        with pytest.raises(StoreUnreachable, match=f"127.0.0.1:{port}: no answer in time"):
            call()

    assert time.monotonic() - begun < 30.0
    store.close()


def test_wrong_keys_are_denied_at_once_and_the_secret_is_not_told(
    s3_server: S3Server, url: str
) -> None:
    for access in (Access(s3_server.key, "a-wrong-secret"), Access("nobody", "a-wrong-secret")):
        store = S3Store(url, s3_server.endpoint, access, limit_seconds=600.0)
        for call in (
            lambda store=store: store.put("run/blob", [b"x"]),
            lambda store=store: store.read("run/blob", 0, 1),
            lambda store=store: store.size("run/blob"),
        ):
            with pytest.raises(StoreDenied, match="AWS_SECRET_ACCESS_KEY") as caught:
                call()
            assert "a-wrong-secret" not in f"{caught.value} {access}"
        store.close()


def test_bytes_altered_on_the_way_are_noticed(store: S3Store, proxy: Proxy) -> None:
    manifest = put_small(store, small_key, b"a true report")
    key = small_key(manifest)
    proxy.hardship = lambda head, piece: piece.replace(b"a true report", b"a tale report")

    with pytest.raises(BlobCorrupt, match=key):
        read_small(store, key, manifest)


def test_a_server_without_conditional_requests_is_still_written_to(
    store: S3Store, proxy: Proxy
) -> None:
    refusal = b"<Error><Code>NotImplemented</Code><Message>header</Message></Error>"
    answer = b"HTTP/1.1 501 Not Implemented\r\nContent-Length: %d\r\n\r\n%s"

    def know_no_conditions(head: bytes, piece: bytes) -> bytes | None:
        return answer % (len(refusal), refusal) if head.startswith(b"PUT") else piece

    proxy.hardship = times(1, know_no_conditions)
    store.put("run/blob", [b"kept"])

    assert store.read("run/blob", 0, 4) == b"kept"


def unfinished_uploads(server: S3Server, url: str) -> list[str]:
    """Keys below `url` whose uploads were neither completed nor aborted."""
    files = S3FileSystem(endpoint_url=server.endpoint, skip_instance_cache=True)
    answer = files.call_s3("list_multipart_uploads", Bucket=server.bucket)
    keys = [upload["Key"] for upload in answer.get("Uploads", [])]
    return [key for key in keys if f"{server.url}/{key}".startswith(url)]
