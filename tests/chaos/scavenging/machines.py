"""Machines that come and go, one process each: started ahead or cold, let in, told to leave.

A machine that is there is one whose process has loaded torch and built its model. That takes
seconds, on a busy box many, and none of them is the run's; so the next process of a machine is
started ahead and waits at a gate. A cold one is started only when its machine comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from decodiloco.local.plan import Role, spot_roles
from decodiloco.local.supervisor import Supervisor
from tests.chaos.soak.journal import entries
from tests.chaos.soak.stepping import lives_of
from tests.real_cluster import until

STEP_SECONDS_MAX = 240.0


class Machines:
    """The extra learners of a run, and how long each took to make a step and to leave."""

    def __init__(self, folder: Path, count: int, pace_seconds: float, cold: bool) -> None:
        self.roles = spot_roles(str(folder), count)
        self.start_seconds: list[float] = []
        self.left_seconds: list[float] = []
        self._folder, self._pace_seconds, self._cold = folder, pace_seconds, cold
        self._supervisor = Supervisor(folder / "spot", print)
        self._lives = dict.fromkeys((role.id for role in self.roles), 0)
        self._processes: dict[str, asyncio.Task[None]] = {}

    def prepare(self) -> None:
        """Starts what may be started ahead."""
        for role in self.roles:
            if not self._cold:
                self._start(role)

    async def come(self, role: Role) -> None:
        """The machine is there until its process ends."""
        begins, before = time.monotonic(), len(self._there(role))
        if self._cold:
            self._start(role)
        process = self._processes[role.id]
        self._gate(role).touch()
        await until(
            lambda: process.done() or len(self._there(role)) > before, role.id, STEP_SECONDS_MAX
        )
        self.start_seconds += [life[0] - begins for life in self._there(role)[before:]]
        await process

    async def go(self, role: Role) -> None:
        """SIGTERM, and SIGKILL to whoever takes longer than a spot machine's notice."""
        begins = time.monotonic()
        await self._supervisor.stop([role.name])
        self.left_seconds.append(time.monotonic() - begins)
        if not self._cold:
            await self._processes[role.id]
            self._start(role)

    async def ended(self, seconds: float) -> None:
        """Waits for those who train on to the end of the run, and stops those at the gate."""
        names = [role.name for role in self.roles if self._gate(role).exists()]
        await self._supervisor.ended(names, seconds)
        await self.stop()

    async def stop(self) -> None:
        await self._supervisor.stop([role.name for role in self.roles])
        await asyncio.gather(*self._processes.values(), return_exceptions=True)

    def _start(self, role: Role) -> None:
        self._lives[role.id] += 1
        module, *words = trainee(self._folder, role.id, self._pace_seconds)
        arguments = (*words, "--gate", str(self._gate(role)))
        process = self._supervisor.keep(replace(role, module=module, arguments=arguments))
        self._processes[role.id] = asyncio.create_task(process)

    def _gate(self, role: Role) -> Path:
        """The file that lets the newest process of a machine in."""
        return self._folder / f"{role.id}-{self._lives[role.id]}.gate"

    def _there(self, role: Role) -> Sequence[Sequence[float]]:
        return lives_there(self._folder, role.id)


def lives_there(folder: Path, name: str) -> list[list[float]]:
    """The moments at which each life of a learner made its steps, lives with a step only."""
    return [life for life in lives_of(entries(folder / "steps" / f"{name}.jsonl")) if life]


def trainee(folder: Path, name: str, pace_seconds: float) -> list[str]:
    """Module and words of a learner with a pace."""
    module, config = "tests.chaos.soak.trainee", str(folder / "run.toml")
    pace = str(pace_seconds)
    return [module, "--config", config, "--id", name, "--seat", name, "--pace", pace]
