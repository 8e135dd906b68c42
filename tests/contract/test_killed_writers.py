"""A writer killed at any moment leaves whole blobs only, in a folder as in a bucket."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from decodiloco.local.s3_server import S3Server
from decodiloco.store.blobs import BlobStore
from decodiloco.store.open_store import open_store
from tests.contract.writer import content_of, key_of

MIB = 1024 * 1024


def kill_a_writer(url: str, endpoint: str, size_bytes: int, moment_seconds: float) -> list[str]:
    """Starts a writer, kills it that long after its third put began; returns what it said."""
    command = [sys.executable, "-m", "tests.contract.writer", url, endpoint, str(size_bytes)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = []
    try:
        for line in writer.stdout:
            said.append(line.strip())
            if line.strip() == "put 2":
                threading.Event().wait(moment_seconds)
                break
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    said += [line.strip() for line in writer.stdout]
    assert "put 2" in said, "the writer ended by itself"
    return said


def check(store: BlobStore, said: list[str], size_bytes: int) -> None:
    """What was held is there; what was begun is there whole or not at all."""
    for number in range(1 + sum(line.startswith("put") for line in said)):
        held_bytes = store.size(key_of(number))
        if f"held {number}" in said:
            assert held_bytes == size_bytes
        assert held_bytes in (None, size_bytes)
        if held_bytes is not None:
            assert store.read(key_of(number), 0, size_bytes) == content_of(number, size_bytes)


@pytest.mark.parametrize("seed", range(6))
def test_a_writer_killed_at_a_random_moment_leaves_no_partial_file(
    tmp_path: Path, seed: int
) -> None:
    moment_seconds = random.Random(seed).uniform(0.0, 0.1)

    said = kill_a_writer(tmp_path.as_uri(), "", 24 * MIB, moment_seconds)

    check(open_store(tmp_path.as_uri()), said, 24 * MIB)


@pytest.mark.parametrize("size_bytes", [4 * MIB, 40 * MIB])
@pytest.mark.parametrize("seed", range(2))
def test_a_writer_killed_at_a_random_moment_leaves_no_partial_object(
    s3_server: S3Server, seed: int, size_bytes: int
) -> None:
    url = f"{s3_server.url}/killed-{secrets.token_hex(6)}"
    moment_seconds = random.Random(seed).uniform(0.0, size_bytes / (100 * MIB))

    said = kill_a_writer(url, s3_server.endpoint, size_bytes, moment_seconds)

    store = open_store(url, s3_server.endpoint)
    check(store, said, size_bytes)
    store.close()
