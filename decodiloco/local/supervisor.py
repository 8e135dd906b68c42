"""Processes kept alive on one machine: started, logged, restarted after a crash, stopped by pid.

Knows processes and nothing of runs. Each child leads a group of its own, so that a Ctrl-C at
the terminal reaches only us and we stop the children in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from decodiloco.local.plan import Role
from decodiloco.times import (
    KILL_SECONDS,
    RESTART_PAUSE_SECONDS,
    RESTART_PAUSE_SECONDS_MAX,
    STEADY_SECONDS,
    TERM_SECONDS,
)
from streams.errors import Trouble

RESTARTS_MAX = 5
LOG_TAIL_BYTES = 4096


class Supervisor:
    """Runs roles as processes; `say` gets a line whenever one is started again."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._logs = folder / "logs"
        self._register = folder / "processes.json"
        self._say = say
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._foreign: dict[str, int] = {}
        self._stopping: set[str] = set()

    def note_foreign(self, name: str, pid: int) -> None:
        """Registers a process that somebody else started, so that a next start can end it."""
        self._foreign[name] = pid
        self._write_register()

    def pid(self, name: str) -> int | None:
        """The process id of a running role, else None."""
        process = self._running.get(name)
        return None if process is None or process.returncode is not None else process.pid

    async def run_once(self, role: Role) -> None:
        """Runs a role to its end; Trouble with the last line of its log when it fails."""
        status = await self._live(role)
        if status != 0:
            raise self._failed(role, status)

    async def keep(self, role: Role) -> None:
        """Runs a role until it ends well, and starts it again when it does not.

        Waits a second before the first restart and twice as long before each next. Raises
        Failed after `RESTARTS_MAX` restarts, or at once when it says that it was asked wrongly.
        A role that was stopped may be kept again.
        """
        self._stopping.discard(role.name)
        loop = asyncio.get_running_loop()
        restarts, pause_seconds = 0, float(RESTART_PAUSE_SECONDS)
        while True:
            began_seconds = loop.time()
            status = await self._live(role)
            if status == 0 or role.name in self._stopping:
                return
            if loop.time() - began_seconds > STEADY_SECONDS:
                restarts, pause_seconds = 0, RESTART_PAUSE_SECONDS
            if status == 2 or restarts == RESTARTS_MAX:
                raise self._failed(role, status)
            restarts += 1
            told = self._told(role, status)
            self._say(f"{told}; started again in {pause_seconds:.0f} s")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RESTART_PAUSE_SECONDS_MAX)
            if role.name in self._stopping:
                return

    def kill(self, name: str) -> int | None:
        """`kill -9` of one running role, by its pid; None when it does not run."""
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid

    async def ended(self, names: Sequence[str], seconds: float) -> None:
        """Waits until these roles end by themselves, or for so long."""
        await _all_ended([self._running[name] for name in names if self.pid(name)], seconds)

    async def stop(self, names: Sequence[str]) -> None:
        """SIGTERM to these roles, then SIGKILL to those that do not end in time."""
        self._stopping.update(names)
        processes = [self._running[name] for name in names if self.pid(name) is not None]
        for process in processes:
            _signal_group(process.pid, signal.SIGTERM)
        for number, patience_seconds in (
            (signal.SIGKILL, TERM_SECONDS),
            (signal.SIGKILL, KILL_SECONDS),
        ):
            if not await _all_ended(processes, patience_seconds):
                for process in processes:
                    if process.returncode is None:
                        _signal_group(process.pid, number)
        self._write_register()

    def forget(self) -> None:
        """Drops the register: nothing of this start is left running."""
        self._register.unlink(missing_ok=True)

    async def _live(self, role: Role) -> int:
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            with self._log(role).open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    role.module,
                    *role.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise Trouble(f"{role.name} cannot be started: {error}") from None
        self._running[role.name] = process
        self._write_register()
        return await process.wait()

    def _log(self, role: Role) -> Path:
        return self._logs / f"{role.name}.log"

    def _failed(self, role: Role, status: int) -> Failed:
        return Failed(f"{self._told(role, status)} (all of it: {self._log(role)})", status)

    def _told(self, role: Role, status: int) -> str:
        """How a role ended, with its last words where it had a choice."""
        if status < 0:
            return f"{role.name} was ended by {signal.Signals(-status).name}"
        with self._log(role).open("rb") as log:
            log.seek(max(0, self._log(role).stat().st_size - LOG_TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        told = last.removeprefix("decodiloco: ").removeprefix("replay: ")
        if told != last:  # a clear message of ours says enough
            return f"{role.name}: {told}"
        return f"{role.name} ended with exit code {status}: {last}"

    def _write_register(self) -> None:
        pids = {name: pid for name in self._running if (pid := self.pid(name)) is not None}
        entries = []
        for name, pid in {**self._foreign, **pids}.items():
            try:
                entries.append([name, pid, psutil.Process(pid).create_time()])
            except psutil.NoSuchProcess:
                continue
        draft = self._register.with_name(self._register.name + ".new")
        with suppress(OSError):  # a full disk; a next start then finds an older register
            draft.write_text(json.dumps(entries) + "\n", encoding="utf-8")
            draft.replace(self._register)


class Failed(Trouble):
    """A process of the cluster ended badly and is not started again."""

    def __init__(self, told: str, status: int) -> None:
        super().__init__(told)
        self.exit_code = status if status in (1, 2, 3) else 3


def end_leftovers(folder: Path) -> list[str]:
    """Ends what an earlier start in this folder left running when it was killed; their names.

    A process is ours only if its pid and its time of creation are those in the register. They
    end in the order of a normal stop: who still has something to say, before who hears it.
    """
    register = folder / "processes.json"
    if not register.exists():
        return []
    left: dict[str, psutil.Process] = {}
    for name, pid, created_seconds in _registered(register):
        try:
            process = psutil.Process(pid)
            if process.create_time() == created_seconds:
                left[name] = process
        except psutil.NoSuchProcess:
            continue
    hearers = ("syncer", "merger", "recorder", "archive", "nats-server")
    speakers = [left[name] for name in left if not name.startswith(hearers)]
    _end(speakers)
    for hearer in hearers:
        _end([left[name] for name in left if name.startswith(hearer)])
    register.unlink()
    return sorted(left)


def _registered(register: Path) -> list[tuple[str, int, float]]:
    try:
        return [(name, pid, at) for name, pid, at in json.loads(register.read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []  # whoever broke the file took our knowledge with it


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=TERM_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=KILL_SECONDS)


async def _all_ended(processes: Sequence[asyncio.subprocess.Process], limit: float) -> bool:
    if not processes:
        return True
    waits = [asyncio.ensure_future(process.wait()) for process in processes]
    _, pending = await asyncio.wait(waits, timeout=limit)
    for wait in pending:
        wait.cancel()
    return not pending


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return  # it ended in between
