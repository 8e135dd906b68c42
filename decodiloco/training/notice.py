"""A notice to stop, as a spot machine gets it: heard by a thread that nothing in the loop delays.

Python runs its signal handlers between two bytecodes of the main thread, so one long step would
keep a notice waiting. Here the C handler wakes a thread of our own. It must not know what is
trained, nor how one leaves.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import Literal, NoReturn

from decodiloco.stopping import heeded
from decodiloco.times import NOTICE_END_SECONDS


class Stop:
    """Whether somebody asked this process to stop, and how: SIGTERM preempts, others ask.

    Until `gentle` is set the first signal ends the process with exit code 0: nothing is begun yet
    that could be finished. From then on it is noted, for the loop to see after the step at hand.
    A second one ends the process at once, as does the end of `NOTICE_END_SECONDS` after the first:
    whatever hangs, by then it is over.
    """

    def __init__(self) -> None:
        self.reason: Literal["preempted", "asked"] | None = None
        self.gentle = False
        self._first_seconds: float | None = None
        self._ears, voice = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(voice, warn_on_full_buffer=False)
        for number in heeded():
            signal.signal(number, self._note)
        threading.Thread(target=self._watch, name="decodiloco-notice", daemon=True).start()

    @property
    def left_seconds(self) -> float:
        """Time until this process is ended: all of it while nobody has asked."""
        now_seconds = time.monotonic()
        return (self._first_seconds or now_seconds) + NOTICE_END_SECONDS - now_seconds

    def over(self, code: int, told: str = "") -> NoReturn:
        """Ends the process, now that all is said: with a line on stderr, if there is one to say.

        To take an interpreter with torch in it apart takes seconds on a busy machine, out of a
        notice that has few.
        """
        if told:
            print(f"decodiloco: {told}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._first_seconds = self._first_seconds or time.monotonic()  # whoever hears it first
        self.reason = self.reason or ("preempted" if number == signal.SIGTERM else "asked")
        if not self.gentle:
            raise SystemExit(0)

    def _watch(self) -> None:
        select.select([self._ears], [], [])
        numbers = os.read(self._ears, 64)
        self._first_seconds = self._first_seconds or time.monotonic()
        if len(numbers) < 2:
            heard, _, _ = select.select([self._ears], [], [], NOTICE_END_SECONDS)
            if not heard:
                _end(
                    3, f"still not at its end {NOTICE_END_SECONDS:.0f} s after it was asked to stop"
                )
            numbers = os.read(self._ears, 64)
        _end(128 + numbers[-1], "asked to stop a second time")


def _end(code: int, why: str) -> None:
    """Ends the process without asking any of its threads."""
    told = f"decodiloco: {why}: ended at once; the same command joins again\n"
    os.write(sys.stderr.fileno(), told.encode())
    os._exit(code)
