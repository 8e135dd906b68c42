"""What every body of the store must do: memory, a folder, a real S3 server, one in a container."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.local.s3_server import S3Server
from decodiloco.store.blobs import BlobStore, LateParts
from decodiloco.store.open_store import open_store
from streams.errors import BadName

MIB = 1024 * 1024


@pytest.fixture(params=["memory", "file", "s3", "s3-in-docker"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str | None]]:
    """Address and endpoint of an empty store."""
    empty = f"test-{secrets.token_hex(6)}"
    match request.param:
        case "memory":
            yield f"memory://{empty}", None
        case "file":
            yield (tmp_path / "a store").as_uri(), None
        case "s3":
            server: S3Server = request.getfixturevalue("s3_server")
            yield f"{server.url}/{empty}", server.endpoint
        case _:
            bucket, endpoint = request.getfixturevalue("s3_container")
            yield f"s3://{bucket}/{empty}", endpoint


@pytest.fixture
def store(place: tuple[str, str | None]) -> Iterator[BlobStore]:
    store = open_store(*place)
    yield store
    store.close()


def test_what_is_put_is_read_back_whole_and_in_ranges(store: BlobStore) -> None:
    blob = bytes(range(256)) * 40

    store.put("run/delta/a/f0-1", [blob])

    assert store.size("run/delta/a/f0-1") == len(blob)
    assert bytes(store.read("run/delta/a/f0-1", 0, len(blob))) == blob
    assert bytes(store.read("run/delta/a/f0-1", 100, 300)) == blob[100:300]
    assert bytes(store.read("run/delta/a/f0-1", 7, 7)) == b""


def test_parts_are_laid_end_to_end_as_their_bytes(store: BlobStore) -> None:
    numbers = np.arange(6, dtype="<f4")

    store.put("run/parts", [b"head", memoryview(numbers), b"", memoryview(b"tail")])

    whole = b"head" + numbers.tobytes() + b"tail"
    assert bytes(store.read("run/parts", 0, len(whole))) == whole


def test_a_blob_may_be_empty(store: BlobStore) -> None:
    store.put("run/empty", [])

    assert store.size("run/empty") == 0
    assert bytes(store.read("run/empty", 0, 0)) == b""


def test_a_blob_of_many_megabytes_comes_back_bit_for_bit(store: BlobStore) -> None:
    blob = np.random.Generator(np.random.Philox(7)).bytes(41 * MIB + 17)

    store.put("run/large", [blob[: 5 * MIB], memoryview(blob)[5 * MIB :]])
    store.put("run/large", [blob])

    assert store.size("run/large") == len(blob)
    assert store.read("run/large", 0, len(blob)) == blob
    assert store.read("run/large", 3 * MIB + 1, 30 * MIB) == blob[3 * MIB + 1 : 30 * MIB]


def test_parts_that_are_late_are_got_as_they_are_sent(store: BlobStore) -> None:
    blob = np.random.Generator(np.random.Philox(8)).bytes(33 * MIB + 5)
    starts = range(0, len(blob), 3 * MIB)
    late = [(len(blob[at : at + 3 * MIB]), partial(_cut, blob, at)) for at in starts]

    store.put("run/late", LateParts([(4, lambda: b"head"), *late]))

    assert store.size("run/late") == 4 + len(blob)
    assert store.read("run/late", 0, 4 + len(blob)) == b"head" + blob


def _cut(blob: bytes, at: int) -> bytes:
    return blob[at : at + 3 * MIB]


def test_the_same_key_again_changes_nothing(store: BlobStore) -> None:
    store.put("run/once", [b"first"])
    store.put("run/once", [b"fi", b"rst"])

    assert bytes(store.read("run/once", 0, 5)) == b"first"


def test_another_size_under_the_same_key_is_noticed_and_not_stored(store: BlobStore) -> None:
    store.put("run/once", [b"first"])

    with pytest.raises(BlobCorrupt, match="run/once is stored with 5 bytes"):
        store.put("run/once", [b"second"])

    assert bytes(store.read("run/once", 0, 5)) == b"first"


def test_a_missing_blob_has_no_size_and_cannot_be_read(store: BlobStore) -> None:
    store.put("run/delta/a", [b"here"])

    for missing in ("run/delta/b", "run/delta", "other/delta/a", "run/delta/a/b"):
        assert store.size(missing) is None
        with pytest.raises(BlobMissing, match=missing):
            store.read(missing, 0, 1)


def test_a_range_beyond_the_end_is_corrupt(store: BlobStore) -> None:
    store.put("run/short", [b"12345"])

    for start, stop in ((0, 6), (4, 9), (5, 6), (90, 99)):
        with pytest.raises(BlobCorrupt, match="run/short"):
            store.read("run/short", start, stop)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "A", "a b", "x" * 513])
def test_a_key_that_could_lead_out_of_the_store_is_refused(store: BlobStore, key: str) -> None:
    with pytest.raises(BadName):
        store.put(key, [b"x"])
    with pytest.raises(BadName):
        store.read(key, 0, 1)
    with pytest.raises(BadName):
        store.size(key)


def test_eight_writers_of_one_key_leave_one_whole_content(store: BlobStore) -> None:
    contents = [bytes([number]) * MIB for number in range(8)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: store.put("run/contended", [content]), contents))

    assert bytes(store.read("run/contended", 0, MIB)) in contents


def test_many_threads_put_and_read_at_once(store: BlobStore) -> None:
    def there_and_back(number: int) -> bool:
        content = number.to_bytes(2, "big") * 50_000
        store.put(f"run/many/{number}", [content])
        return bytes(store.read(f"run/many/{number}", 0, len(content))) == content

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(there_and_back, range(64)))


def test_what_was_put_stays_when_the_store_is_closed_and_opened_by_its_url(
    place: tuple[str, str | None],
) -> None:
    first = open_store(*place)
    first.put("run/kept", [b"kept"])
    first.close()
    first.close()

    second = open_store(first.url, place[1])
    assert bytes(second.read("run/kept", 0, 4)) == b"kept"
    assert second.url == first.url
    second.close()


def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    store = open_store("s3://nobody-made-this/run", s3_server.endpoint)

    for call in (
        lambda: store.put("run/a", [b"x"]),
        lambda: store.read("run/a", 0, 1),
        lambda: store.size("run/a"),
    ):
        with pytest.raises(StoreUnreachable, match=r"nobody-made-this.*no such bucket\. Make it"):
            call()
    store.close()


def test_keys_are_listed_by_prefix_whole_and_in_order(store: BlobStore) -> None:
    assert store.keys("run/") == []
    names = [f"run/archive/{number}-{number:016x}" for number in (1, 12, 101, 7)]
    for name in (*names, "run/archive/deep/er", "run/archived", "run/delta/a/f0-1", "other/x"):
        store.put(name, [b"bytes"])

    assert store.keys("run/archive/") == sorted([*names, "run/archive/deep/er"])
    assert store.keys("run/delta/") == ["run/delta/a/f0-1"]
    assert store.keys("run/archive/1-0000000000000001/") == []
    assert store.keys("nobody/") == []
    assert len(store.keys("run/")) == len(names) + 3


def test_a_list_longer_than_a_page_is_whole(store: BlobStore) -> None:
    names = [f"run/many/{number:04}" for number in range(1003)]  # S3 gives a thousand at once
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, [b""]), names))

    assert store.keys("run/many/") == names


@pytest.mark.parametrize("prefix", ["", "/", "run", "../", "run/../", "run//", "Run/"])
def test_a_prefix_that_could_lead_out_of_the_store_is_refused(
    store: BlobStore, prefix: str
) -> None:
    with pytest.raises(BadName):
        store.keys(prefix)


def test_what_a_killed_writer_left_is_no_blob(tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    store.put("run/archive/1-a", [b"whole"])
    (tmp_path / "store/run/archive/.tmp-0123").write_bytes(b"half")

    assert store.keys("run/archive/") == ["run/archive/1-a"]


def test_what_is_deleted_is_gone_and_may_be_put_again(store: BlobStore) -> None:
    for key in ("run/delta/a/f0-1", "run/delta/a/f0-2"):
        store.put(key, [b"bytes"])

    store.delete("run/delta/a/f0-1")
    store.delete("run/delta/a/f0-1")  # what is gone is passed over
    store.delete("run/delta/nobody/f0-1")

    assert store.keys("run/") == ["run/delta/a/f0-2"]
    assert store.size("run/delta/a/f0-1") is None
    with pytest.raises(BlobMissing):
        store.read("run/delta/a/f0-1", 0, 5)
    store.put("run/delta/a/f0-1", [b"bytes"])
    assert bytes(store.read("run/delta/a/f0-1", 0, 5)) == b"bytes"


def test_many_may_delete_and_put_at_once(store: BlobStore) -> None:
    keys = [f"run/delta/a/f0-{number}" for number in range(24)]
    for key in keys:
        store.put(key, [b"bytes"])

    def sweep(key: str) -> None:
        store.delete(key)
        store.put(key.replace("/a/", "/b/"), [b"bytes"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sweep, [*keys, *keys]))

    assert store.keys("run/delta/a/") == []
    assert len(store.keys("run/delta/b/")) == len(keys)


@pytest.mark.parametrize("key", ["", "run/../other", "/run/x", "run/x/", "run//x"])
def test_a_key_that_could_lead_out_of_the_store_is_never_deleted(
    store: BlobStore, key: str
) -> None:
    with pytest.raises(BadName):
        store.delete(key)
