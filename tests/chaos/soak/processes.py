"""The processes of a soak: seats that are kept taken, struck by signals, and their accounts.

Knows processes; nothing of runs. A seat whose process ends is taken again after a moment, as a
supervisor would, unless it is held empty. Everything is stopped by its own pid.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

AGAIN_SECONDS = 0.5
STOP_SECONDS_MAX = 15.0
TAIL_BYTES = 4096
ENDS = ("learner ", "syncer ", "decodiloco: ")  # how our own commands say why they end
DUTY_SECONDS = 0.4


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `struck` by us, or by itself, and its last words."""

    seat: str
    code: int
    at_seconds: float
    struck: bool
    last_words: str


@dataclass(slots=True)
class Seat:
    """A chair of the run: the command of whoever sits there, and what was done to it."""

    name: str
    words: tuple[str, ...]
    process: asyncio.subprocess.Process | None = None
    kept: bool = True
    struck: bool = False
    done: bool = False
    paused_at: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    free: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int | None:
        process = self.process
        return None if process is None or process.returncode is not None else process.pid


class Processes:
    """All seats, by name."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self.seats: dict[str, Seat] = {}
        self.exits: list[Exit] = []
        self._logs.mkdir(parents=True, exist_ok=True)

    def take(self, name: str, words: Sequence[str], kept: bool = True) -> Seat:
        """Starts a process on a seat; a `kept` one is started again whenever it ends badly."""
        seat = self.seats.get(name) or Seat(name, tuple(words))
        seat.words, seat.kept, seat.done = tuple(words), kept, False
        seat.free.set()
        self.seats[name] = seat
        self._keepers[name] = asyncio.create_task(self._keep(seat), name=f"seat {name}")
        return seat

    def kill(self, name: str) -> None:
        """`kill -9`, also of a stopped process."""
        self._end(name, signal.SIGKILL)

    def ask_to_leave(self, name: str) -> None:
        """SIGTERM, as a spot machine's notice."""
        self._end(name, signal.SIGTERM)

    def hold(self, name: str) -> None:
        """From now on the seat is left empty when its process ends."""
        self.seats[name].free.clear()

    def let(self, name: str) -> None:
        """The seat may be taken again."""
        self.seats[name].free.set()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        seat = self.seats[name]
        if seat.pid is not None and seat.paused_at is None:
            os.kill(seat.pid, signal.SIGSTOP)
            seat.paused_at = time.monotonic()

    def resume(self, name: str) -> None:
        """SIGCONT, for whoever was paused and lives."""
        seat = self.seats[name]
        if seat.paused_at is not None:
            if seat.pid is not None:
                os.kill(seat.pid, signal.SIGCONT)
            seat.pauses.append((seat.paused_at, time.monotonic()))
            seat.paused_at = None

    async def slow(self, name: str, factor: float, seconds: float) -> None:
        """For so long the process runs one part in `factor` of the time."""
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                await asyncio.sleep(DUTY_SECONDS / factor)
                self.pause(name)
                await asyncio.sleep(DUTY_SECONDS * (1 - 1 / factor))
                self.resume(name)
        finally:
            self.resume(name)

    async def done(self, names: Sequence[str], seconds: float) -> list[str]:
        """Waits until these seats ended well; the names of those that did not in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(self.seats[name].done for name in names):
                return []
            await asyncio.sleep(0.05)
        return [name for name in names if not self.seats[name].done]

    async def stop(self) -> None:
        """Ends everything: asked first, killed after a while."""
        for seat in self.seats.values():
            seat.kept = False
            self.resume(seat.name)
            if seat.pid is not None:
                self.ask_to_leave(seat.name)
        keepers = [task for task in self._keepers.values() if not task.done()]
        if keepers:
            await asyncio.wait(keepers, timeout=STOP_SECONDS_MAX)
        for seat in self.seats.values():
            self.kill(seat.name)
        for task in keepers:
            task.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)

    def _end(self, name: str, number: signal.Signals) -> None:
        seat = self.seats[name]
        if seat.pid is not None:
            seat.struck = True
            with suppress(ProcessLookupError):
                os.kill(seat.pid, number)
            if number == signal.SIGKILL:
                self.resume(name)

    async def _keep(self, seat: Seat) -> None:
        while True:
            await seat.free.wait()
            seat.struck = False
            with (self._logs / f"{seat.name}.log").open("ab") as log:
                seat.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *seat.words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    start_new_session=True,
                )
            code = await seat.process.wait()
            self.resume(seat.name)
            told = self._last_words(seat)
            self.exits.append(Exit(seat.name, code, time.monotonic(), seat.struck, told))
            if not seat.kept or (code == 0 and not seat.struck):
                seat.done = code == 0
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _last_words(self, seat: Seat) -> str:
        with (self._logs / f"{seat.name}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        own = [line for line in lines if line.startswith(ENDS)]  # a library may say more after it
        return (own or lines or ["it said nothing"])[-1][:400]
