"""A region's cache of the store as a process: nginx on the file that deploy/geo ships."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.geo.servers import GEO

TEMPLATE = GEO / "store-cache.conf.template"
READY_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0
LOGGED = (
    *("request_method", "uri", "status", "upstream_cache_status", "upstream_status"),
    *("body_bytes_sent", "upstream_bytes_received"),
)
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def missing() -> str:
    """Why no cache can be started here; empty where one can."""
    return "" if shutil.which("nginx") else "nginx is not installed (Debian: nginx-light)"


class Asked(NamedTuple):
    """One request as the cache saw it: how it answered, and how the store did (`-`: not asked).

    Bytes: of the body that the reader got, and of all that came from the store for it.
    """

    method: str
    path: str
    status: int
    how: str
    store_status: str
    body_bytes: int
    store_bytes: int


class StoreCache:
    """One nginx between readers at `listen` and a store, both `host:port`. A context manager.

    `within` goes before its command. Temporary files and the cache are in `folder`.
    """

    def __init__(self, folder: Path, listen: str, store: str, within: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.listen, self.within = folder, listen, within
        self.cache_dir = folder / "cache"
        told = {"LISTEN": listen, "STORE": store, "CACHE_DIR": self.cache_dir, "CACHE_SIZE": "1g"}
        (folder / "store-cache.conf").write_text(filled(told), encoding="utf-8")
        (folder / "nginx.conf").write_text(self._around(), encoding="utf-8")

    def __enter__(self) -> StoreCache:
        command = (*self.within, "nginx", "-p", str(self.folder), "-c", "nginx.conf")
        self._process = subprocess.Popen((*command, "-e", str(self._errors)))
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not (self.folder / "pid").exists():
            assert time.monotonic() < deadline, "nginx did not come up"
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                raise AssertionError(self._errors.read_text(encoding="utf-8"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def endpoint(self) -> str:
        return f"http://{self.listen}"

    def asked(self) -> list[Asked]:
        """All requests so far, in the order in which they were answered."""
        lines = (self.folder / "access.log").read_text(encoding="utf-8").splitlines()
        found = []
        for method, path, status, how, store, body, came in (line.split("\t") for line in lines):
            store_bytes = sum(int(each) for each in came.split(", ") if each != "-")
            found.append(Asked(method, path, int(status), how, store, int(body), store_bytes))
        return found

    def entries(self) -> list[Path]:
        """The files of what is kept."""
        return sorted(path for path in self.cache_dir.rglob("*") if path.is_file())

    @property
    def _errors(self) -> Path:
        return self.folder / "error.log"

    def _around(self) -> str:
        """What a server's own nginx.conf has around the file: here, all of it in one folder."""
        temporary = "\n".join(f"  {name}_temp_path {name};" for name in FOLDERS)
        form = "\t".join(f"${name}" for name in LOGGED)
        return (
            f"daemon off;\nuser {getuser()};\npid pid;\nworker_processes 1;\nevents {{}}\n"
            f"http {{\n{temporary}\n  log_format asked '{form}';\n"
            f"  access_log access.log asked;\n  include store-cache.conf;\n}}\n"
        )


def filled(told: dict[str, object]) -> str:
    """The shipped file with its variables, as envsubst fills them in."""
    text = TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\$\{([A-Z_]+)\}", lambda found: str(told[found[1]]), text)
