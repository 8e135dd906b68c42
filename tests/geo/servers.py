"""The servers of deploy/geo as processes: a hub and regions, by the files that are shipped."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from streams.nats_server import find_binary
from tests.tidy.house import ROOT

GEO = ROOT / "deploy" / "geo"
READY_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 30.0


class GeoServer:
    """One nats-server of a file of deploy/geo, with its variables; `within` goes before it."""

    def __init__(
        self, folder: Path, conf: Path, variables: dict[str, str], within: Sequence[str] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.listen = variables["LISTEN"]
        self._command = [*within, find_binary(), "-c", str(conf)]
        quoted = {name: f'"{value}"' for name, value in variables.items()}
        self._environment = {**os.environ, **quoted, "STORE_DIR": f'"{folder}/store"'}
        self.start()

    @property
    def url(self) -> str:
        return f"nats://{self.listen}"

    def start(self) -> None:
        """Starts it, or starts it again."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, cwd=self.folder
            )

    def stop(self) -> None:
        """Stops it in good order."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def log_file(self) -> Path:
        return self.folder / "nats-server.log"

    def await_told(self, line: str, times: int = 1) -> None:
        """Until its log has a line so many times."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while self.log_file.read_text(encoding="utf-8").count(line) < times:
            assert time.monotonic() < deadline, self.log_file.read_text(encoding="utf-8")[-2000:]
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
                raise AssertionError(self.log_file.read_text(encoding="utf-8")[-2000:])


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
