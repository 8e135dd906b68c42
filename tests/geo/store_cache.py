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
from typing import NamedTuple, TypeVar

from tests.geo.servers import GEO

TEMPLATE = GEO / "store-cache.conf.template"
READY_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0
LOGGED = (
    *("request_method", "uri", "status", "upstream_cache_status", "upstream_status"),
    *("body_bytes_sent", "upstream_bytes_received"),
)
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
Self = TypeVar("Self", bound="Nginx")


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


class Nginx:
    """One nginx that serves what a file says, all of it in one folder. A context manager.

    `within` goes before its command.
    """

    def __init__(self, folder: Path, served: str, within: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._errors = folder / "error.log"
        around = (*within, "nginx", "-p", str(folder), "-c", "nginx.conf", "-e", str(self._errors))
        self._command = around
        (folder / "served.conf").write_text(served, encoding="utf-8")
        temporary = "\n".join(f"  {name}_temp_path {name};" for name in FOLDERS)
        form = "\t".join(f"${name}" for name in LOGGED)
        (folder / "nginx.conf").write_text(
            f"daemon off;\nuser {getuser()};\npid pid;\nworker_processes 1;\nevents {{}}\n"
            f"http {{\n{temporary}\n  log_format asked '{form}';\n"
            f"  access_log access.log asked;\n  include served.conf;\n}}\n",
            encoding="utf-8",
        )

    def __enter__(self: Self) -> Self:
        self._process = subprocess.Popen(self._command)
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


class StoreCache(Nginx):
    """The cache between readers at `listen` and a store, both `host:port`.

    `trusted` is the file of who signs for a store behind https.
    """

    def __init__(
        self,
        folder: Path,
        listen: str,
        store: str,
        within: Sequence[str] = (),
        trusted: Path | None = None,
    ) -> None:
        self.listen = listen
        self.cache_dir = folder / "cache"
        told = {
            "LISTEN": listen,
            "CACHE_DIR": self.cache_dir,
            "CACHE_SIZE": "1g",
            "STORE": store,
            "STORE_SCHEME": "https" if trusted else "http",
            "STORE_CA": trusted,
        }
        text = TEMPLATE.read_text(encoding="utf-8")
        served = re.sub(r"\$\{([A-Z_]+)\}", lambda found: str(told[found[1]]), text)
        super().__init__(folder, served, within)

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
