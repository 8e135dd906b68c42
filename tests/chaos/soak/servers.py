"""The servers of a soak, each on a small disk of its own that can be filled.

A disk is a tmpfs where we may mount one (root on Linux), else a plain folder that cannot be
filled: the reason is kept for the report. Knows servers and disks; nothing of runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from decodiloco.local.s3_server import S3Server
from streams.nats_server import NatsServer

NATS_MIB = 192
STORE_MIB = 1024
BLOCK_BYTES = 1 << 20
STARTS_MAX = 3


class Disk:
    """A folder with a limit. `why_not` says why it cannot be filled, if it cannot."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.why_not = ""
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except OSError as error:
            self.why_not = f"no tmpfs can be mounted: {error.strerror}"
            return
        if done.returncode != 0:
            self.why_not = f"no tmpfs can be mounted: {done.stderr.strip()}"

    def fill(self) -> None:
        """Writes until nothing more goes onto it."""
        assert not self.why_not, self.why_not
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(BLOCK_BYTES))
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(512)):
                pass

    def empty(self) -> None:
        """Takes back what `fill` wrote."""
        self._ballast.unlink(missing_ok=True)

    def close(self, keep_at: Path | None = None) -> None:
        """Lets go of the disk; what is on it is copied to a folder that stays, if one is named."""
        if self.why_not:
            return
        self.empty()
        if keep_at is not None:
            shutil.copytree(self.folder, keep_at, dirs_exist_ok=True)
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, timeout=10)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


class Servers:
    """A nats-server and an S3 server; each can be killed and started again as the same."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.nats_disk = Disk(folder / "nats" / "store", NATS_MIB)
        self.store_disk = Disk(folder / "weed", STORE_MIB)
        try:
            self.nats = NatsServer.start(folder / "nats")
            try:
                self.store = S3Server.start(folder / "weed")
            except BaseException:
                self.nats.stop()
                raise
        except BaseException:
            self.nats_disk.close()
            self.store_disk.close()
            raise

    @property
    def nats_port(self) -> int:
        return int(self.nats.url.rpartition(":")[2])

    def start_nats(self) -> None:
        """Starts nats-server where it was, if it does not run."""
        if not self.nats.running():
            self.nats.kill()  # only lets go of what the dead one held
            self.nats = NatsServer.start(self._folder / "nats")

    def kill_store(self) -> None:
        """`kill -9` of the S3 server."""
        with suppress(ProcessLookupError):
            os.kill(self.store.pid, signal.SIGKILL)

    def start_store(self) -> None:
        """Starts an S3 server over the same files with the same keys; its port is another."""
        old = self.store
        old.stop()
        self.store = S3Server.start(self._folder / "weed", old.bucket, keys=(old.key, old.secret))

    def stop(self, keep: bool) -> None:
        """Ends both; with `keep` what they stored stays in the folder."""
        self.nats.stop()
        self.store.stop()
        self.nats_disk.close(self._folder / "kept-nats" if keep else None)
        self.store_disk.close(self._folder / "kept-weed" if keep else None)
