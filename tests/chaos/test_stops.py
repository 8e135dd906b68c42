"""A demo that is stopped at every stage: nothing is left running, the same command continues it.

On a terminal of its own: Ctrl-C is typed there, and the terminal is closed under it.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.hands import TEXTS, processes_of

LIMIT_SECONDS = 150.0
STEPS = 30
LEAD = (  # takes the terminal on stdin as its own, then is `decodiloco`
    "import fcntl, runpy, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "runpy.run_module('decodiloco.cli', run_name='__main__', alter_sys=True)\n"
)
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

pytestmark = pytest.mark.timeout(480)


class Screen:
    """A terminal of 80 x 24 with a demo in it."""

    def __init__(self, folder: Path) -> None:
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        options = ("--learners", "2", "--steps", str(STEPS), "--kill", "none")
        self._demo = subprocess.Popen(
            [
                *(sys.executable, "-c", LEAD, "demo", "--dir", str(folder)),
                *("--data", str(TEXTS), *options),
            ],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=environment,
        )
        os.close(slave)
        self.text = ""

    def shows(self, *texts: str) -> None:
        """Reads on until one of the texts is shown."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any(text in self.text for text in texts):
            assert time.monotonic() < deadline, f"{texts} not shown:\n{self.text[-3000:]}"
            if not self._read():
                raise AssertionError(f"ended before {texts} was shown:\n{self.text[-3000:]}")

    def types(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def tell(self, number: signal.Signals) -> None:
        self._demo.send_signal(number)

    def close(self) -> None:
        """The window is closed: SIGHUP, and nowhere to write to."""
        os.close(self._master)
        self._master = -1

    def ends(self) -> int:
        """Its exit code; what it still shows is read meanwhile."""
        while self._master >= 0 and self._read():
            continue
        return self._demo.wait(LIMIT_SECONDS)

    def stop(self) -> None:
        if self._demo.poll() is None:
            self._demo.terminate()
            self._demo.wait(60)
        if self._master >= 0:
            os.close(self._master)

    def _read(self) -> bool:
        """Takes what is there, waiting a moment for it; False at the end."""
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return self._demo.poll() is None
        try:
            shown = os.read(self._master, 65536)
        except OSError:  # the other side has gone
            return False
        self.text += COLOURS.sub("", shown.decode("utf-8", "replace"))
        return bool(shown)


@pytest.mark.long
def test_a_demo_stopped_at_every_stage_leaves_nothing_and_is_continued(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    stages = (
        ("nats-server answers", "the opener runs"),
        ("leads (fence", "syncers are there, learners are not"),
        ("validation loss", "it trains"),
        ("the run is closing", "it closes"),
    )
    stops = (
        lambda screen: screen.types("\x03"),
        lambda screen: screen.close(),
        lambda screen: screen.types("\x03\x03"),  # impatient
        lambda screen: screen.tell(signal.SIGTERM),
    )
    for (shown, stage), stop in zip(stages, stops, strict=True):
        screen = Screen(folder)
        try:
            screen.shows(shown)
            stop(screen)
            code = screen.ends()
        finally:
            screen.stop()
        assert processes_of(folder) == [], stage
        assert "Traceback" not in screen.text, screen.text
        assert code == 130, (stage, screen.text)
        if "stopping everything" in screen.text:  # a closed terminal is told nothing
            assert "the same command continues the run" in screen.text

    screen = Screen(folder)
    try:
        screen.shows("continuing run")
        assert screen.ends() == 0, screen.text
    finally:
        screen.stop()
    # Learners that were stopped while the run was closing come back before it is closed.
    assert "all learners hold the same model at the end" in screen.text, screen.text
    assert "left before the end: " not in screen.text, screen.text
    assert processes_of(folder) == []


def test_a_demo_stopped_while_it_loads_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        screen = Screen(folder)
        try:
            screen.tell(number)
            assert screen.ends() != 0
        finally:
            screen.stop()
        assert processes_of(folder) == []
