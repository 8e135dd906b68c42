"""One process of the world, from its start to its end: killed, stopped or slowed from outside.

Knows moments; must not know what it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from replay.errors import InvariantBroken
from replay.world.heap import Happen, Heap
from streams.errors import Failure


class Killed(Exception):
    """This process has just been killed: what it was doing ends here."""


class Process:
    """What runs on a machine. Its moments come to nothing once it is dead, and wait while stopped.

    `ended` is told when the process ends by itself of a failure, as a program would exit with it.
    """

    def __init__(self, heap: Heap, machine: str, ended: Callable[[Process, Failure], None]) -> None:
        self.heap = heap
        self.machine = machine
        self.is_dead = False
        self.is_stopped = False
        self.slowness = 1.0
        self._ended = ended
        self._held: list[Happen] = []

    def start(self) -> None:
        """Begins to run; overridden by what runs here."""
        raise AssertionError(f"nothing runs on {self.machine}")

    def later(self, seconds: float, happen: Happen) -> None:
        """Lets something happen in this process, if it lives then."""
        self.heap.later(seconds, partial(self.run, happen))

    def work(self, seconds: float, happen: Happen) -> None:
        """Work of its own that takes so long on a healthy machine."""
        self.later(seconds * self.slowness, happen)

    def run(self, happen: Happen) -> None:
        """Something happens in this process now."""
        if self.is_dead:
            return
        if self.is_stopped:
            self._held.append(happen)
            return
        try:
            happen()
        except Killed:
            assert self.is_dead
        except InvariantBroken:
            raise
        except Failure as failure:
            self.kill()
            self._ended(self, failure)

    def kill(self) -> None:
        """As by SIGKILL: nothing of it happens any more."""
        self.is_dead = True
        self._held.clear()

    def stop(self) -> None:
        """As by SIGSTOP: what comes due waits."""
        self.is_stopped = True

    def go_on(self) -> None:
        """As by SIGCONT: all that waited happens, in order."""
        self.is_stopped = False
        held, self._held = self._held, []
        for happen in held:
            self.later(0.0, happen)
