"""A region's network: a namespace, a link to the hub that is counted, shaped and cut, and a second
one by which the test looks in. Wants root, `ip` and `tc`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

RATE = "200mbit"
ROUND_TRIP_MS = 40


def missing() -> str:
    """Why no namespaces can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool} is not installed (iproute2)"
    probe = f"geo{os.getpid()}x"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


class Counted(NamedTuple):
    """Bytes across a link so far, with all headers: into the region, and out of it."""

    into: int
    out: int


class Network:
    """One region's namespace and its links, by number. A context manager."""

    def __init__(self, name: str, number: int) -> None:
        self.namespace = f"geo{os.getpid()}{name}"
        self.link = f"gl{os.getpid()}{number}"[:15]
        self.hub = f"198.18.{number}.1"
        self.watched = f"198.18.{100 + number}.2"
        self.is_shaped = False
        self._ends = ((self.link, number), (f"gw{os.getpid()}{number}"[:15], 100 + number))

    @property
    def within(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)

    def __enter__(self) -> Network:
        space = self.namespace
        _do("ip", "netns", "add", space)
        try:
            _do("ip", "-n", space, "link", "set", "lo", "up")
            for (end, number), far in zip(self._ends, ("hub0", "watch0"), strict=True):
                _do("ip", "link", "add", end, "type", "veth", "peer", "name", far, "netns", space)
                _do("ip", "addr", "add", f"198.18.{number}.1/30", "dev", end)
                _do("ip", "link", "set", end, "up")
                _do("ip", "-n", space, "addr", "add", f"198.18.{number}.2/30", "dev", far)
                _do("ip", "-n", space, "link", "set", far, "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        """Its links go with the namespace."""
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True)

    def shape(self, is_shaped: bool) -> None:
        """Both ends send at the rate of a long line, or as fast as they can."""
        if is_shaped == self.is_shaped:
            return
        self.is_shaped = is_shaped
        bucket = ("tbf", "rate", RATE, "burst", "64kb", "latency", "50ms") if is_shaped else ()
        what = "add" if is_shaped else "del"
        _do("tc", "qdisc", what, "dev", self.link, "root", *bucket)
        _do("tc", "-n", self.namespace, "qdisc", what, "dev", "hub0", "root", *bucket)

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        _do("ip", "link", "set", self.link, "down")

    def heal(self) -> None:
        _do("ip", "link", "set", self.link, "up")

    def counted(self) -> Counted:
        folder = Path("/sys/class/net") / self.link / "statistics"
        into, out = ((folder / name).read_text() for name in ("tx_bytes", "rx_bytes"))
        return Counted(int(into), int(out))


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
