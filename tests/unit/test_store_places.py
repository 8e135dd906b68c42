"""Addresses of stores, and what a folder says when it cannot do what it is asked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from decodiloco.errors import BlobCorrupt, ConfigInvalid, StoreDenied, StoreUnreachable
from decodiloco.store.blobs import hide_credentials
from decodiloco.store.local import MAPPED_BYTES_MIN, LocalStore
from decodiloco.store.open_store import open_store


def test_a_name_in_memory_is_one_store_in_the_whole_process() -> None:
    assert open_store("memory://shared") is open_store("memory://shared")
    assert open_store("memory://shared") is not open_store("memory://other")


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    store = open_store((tmp_path / "a b%20#c").as_uri())

    store.put("run/a", [b"x"])

    assert (tmp_path / "a b%20#c" / "run" / "a").read_bytes() == b"x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "runs/store",
        "/tmp/store",
        "gs://bucket/x",
        "file://relative/folder",
        "file:relative",
        "s3://",
        "s3://No_Bucket/x",
        "s3://bucket/../x",
        "s3://key:hidden@bucket/x",
        "s3://key:hid/hidden@bucket/x",
        "https://key:hidden@server/x",
    ],
)
def test_an_address_that_is_no_store_is_refused_and_never_guessed(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        open_store(url)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:9000", "ftp://a", "http://", "http://k:s@a"])
def test_an_endpoint_that_is_no_server_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigInvalid, match="endpoint"):
        open_store("s3://bucket/x", endpoint)


def test_only_s3_has_an_endpoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="has no endpoint"):
        open_store(tmp_path.as_uri(), "http://127.0.0.1:9000")


def test_credentials_are_not_shown() -> None:
    assert hide_credentials("s3://k:s@bucket/x@y") == "s3://bucket/x@y"
    assert hide_credentials("s3://bucket/x@y") == "s3://bucket/x@y"


def test_a_file_shortened_or_altered_by_another_hand_is_noticed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("run/a", [b"12345678"])

    (tmp_path / "run" / "a").write_bytes(b"1234")

    with pytest.raises(BlobCorrupt, match="has 4 bytes"):
        store.read("run/a", 0, 8)
    with pytest.raises(BlobCorrupt, match="stored with 4 bytes"):
        store.put("run/a", [b"12345678"])


def test_a_large_range_is_mapped_and_outlives_its_store(tmp_path: Path) -> None:
    blob = os.urandom(2 * MAPPED_BYTES_MIN)
    store = LocalStore(tmp_path)
    store.put("run/a", [blob])

    view = store.read("run/a", 4_097, len(blob) - 1)
    store.close()

    assert isinstance(view, memoryview) and view.readonly
    assert view == blob[4_097:-1]


def test_nothing_but_the_blob_is_left_in_its_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for content in (b"first", b"again"):
        store.put("run/a", [content])

    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a"]


def test_a_folder_without_links_takes_blobs_by_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "link", no_links)
    store = LocalStore(tmp_path)
    store.put("run/a", [b"first"])

    assert store.read("run/a", 0, 5) == b"first"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("number", "failure", "advice"),
    [
        (errno.ENOSPC, StoreUnreachable, "free some space"),
        (errno.EROFS, StoreDenied, "let this user write"),
        (errno.EIO, StoreUnreachable, "Input/output error"),
    ],
)
def test_a_disk_that_fails_says_so_and_keeps_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    failure: type[Exception],
    advice: str,
) -> None:
    def fail(descriptor: int, piece: memoryview) -> int:
        raise OSError(number, os.strerror(number))

    store = LocalStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(failure, match=f"blob run/a.*{advice}"):
            store.put("run/a", [b"x"])

    assert store.size("run/a") is None
    assert list((tmp_path / "run").iterdir()) == []


def test_a_file_where_the_folder_should_be_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    store = open_store((tmp_path / "taken").as_uri())

    with pytest.raises(StoreUnreachable, match="taken"):
        store.put("run/a", [b"x"])
    assert store.size("run/a") is None


def test_s3_is_imported_only_when_an_s3_address_is_opened(tmp_path: Path) -> None:
    lines = f"""
import sys
from decodiloco.store.open_store import open_store
import decodiloco.local.s3_server
for url in ("memory://x", {tmp_path.as_uri()!r}):
    open_store(url).put("run/a", [b"x"])
sys.exit(any(name in sys.modules for name in ("s3fs", "botocore", "aiohttp", "torch", "nats")))
"""
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0
