"""A notice to stop, in a process of its own: noted, and in time whatever hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

BEGIN = """
import os, select, signal, sys, threading
from decodiloco.training import notice
notice.NOTICE_END_SECONDS = {seconds}
stop = notice.Stop()
stop.gentle = {gentle}
print("ready", flush=True)
"""
WAITS = """
while stop.reason is None:
    select.select([], [], [], 0.01)
print(stop.reason, 0 < stop.left_seconds <= notice.NOTICE_END_SECONDS, flush=True)
"""
HANGS = "hang = threading.Event()\n" + WAITS + "hang.wait()\n"


def process(code: str, seconds: float = 20.0, gentle: bool = True) -> subprocess.Popen[str]:
    begin = BEGIN.format(seconds=seconds, gentle=gentle)
    made = subprocess.Popen(
        [sys.executable, "-c", begin + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None and made.stdout.readline() == "ready\n"
    return made


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGTERM, "preempted"), (signal.SIGINT, "asked")]
)
def test_the_first_signal_is_noted_and_the_loop_goes_on(number: int, reason: str) -> None:
    asked = process(WAITS)
    asked.send_signal(number)
    told, _ = asked.communicate(timeout=20)
    assert (told, asked.returncode) == (f"{reason} True\n", 0)


def test_before_anything_is_begun_the_first_signal_ends() -> None:
    asked = process("threading.Event().wait()", gentle=False)
    asked.send_signal(signal.SIGHUP)
    assert asked.wait(20) == 0


def test_a_second_signal_ends_a_process_that_hangs_at_once() -> None:
    asked = process(HANGS)
    asked.send_signal(signal.SIGTERM)
    assert asked.stdout is not None and asked.stdout.readline() == "preempted True\n"
    asked.send_signal(signal.SIGTERM)
    _, told = asked.communicate(timeout=10)
    assert asked.returncode == 128 + signal.SIGTERM
    assert told == (
        "decodiloco: asked to stop a second time: ended at once; the same command joins again\n"
    )


def test_a_process_that_hangs_ends_before_the_notice_does() -> None:
    asked, asked_seconds = process(HANGS, seconds=1.0), time.monotonic()
    asked.send_signal(signal.SIGTERM)
    _, told = asked.communicate(timeout=20)
    assert asked.returncode == 3 and time.monotonic() - asked_seconds >= 1.0
    assert "still not at its end 1 s after it was asked to stop: ended at once" in told


def test_a_thread_that_computes_in_c_delays_no_second_signal() -> None:
    asked = process("import hashlib\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)\n")
    asked.send_signal(signal.SIGTERM)
    asked.send_signal(signal.SIGINT)
    _, told = asked.communicate(timeout=20)
    assert asked.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert "a second time" in told


def test_a_process_that_has_said_all_ends_without_taking_itself_apart() -> None:
    asked = process("import atexit\natexit.register(print, 'late')\nstop.over(3, 'so it was')\n")
    told, line = asked.communicate(timeout=20)
    assert (told, line, asked.returncode) == ("", "decodiloco: so it was\n", 3)
