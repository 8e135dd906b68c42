"""What the rooms beside a peer share: its environment, its processes, and a kill under watch.

A learner appends a line a step to FOLDER/NAME.steps: the monotonic time of the step's end, and
what else its room wants to know.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event

READY_SECONDS_MAX = 120.0

WATCH = Event()
"""Never set: what passes while it is waited for is what is measured."""

Line = tuple[float, ...]
"""Of one step: the time of its end, then whatever the learner tells."""

Spawn = Callable[..., subprocess.Popen[bytes]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who steps and who is killed; watched once each has `warm_steps`, so long before and after."""

    learners: Sequence[str]
    killed: str
    warm_steps: int
    before_seconds: float
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Told:
    """The learners' steps by name, and the times between which they were watched."""

    begun: float
    killed: float
    over: float
    steps: Mapping[str, Sequence[Line]]

    def before(self, name: str) -> list[Line]:
        """The steps that ended under watch, up to the kill."""
        return [line for line in self.steps[name] if self.begun <= line[0] < self.killed]

    def after(self, name: str) -> list[Line]:
        """The steps that ended under watch, since the kill."""
        return [line for line in self.steps[name] if self.killed <= line[0] < self.over]

    def longest_before_seconds(self, *names: str) -> float:
        """The longest time that one of these was without a step, until the kill."""
        return max(_longest(self.begun, self.before(name), self.killed) for name in names)

    def longest_after_seconds(self, *names: str) -> float:
        """The longest time that one of these was without a step, since the kill."""
        return max(_longest(self.killed, self.after(name), self.over) for name in names)

    def stalls(self, *names: str) -> str:
        """Both, in words."""
        before, after = self.longest_before_seconds(*names), self.longest_after_seconds(*names)
        return f"{after:.3f} s (before: {before:.3f} s)"


def watched(folder: Path, learner: Callable[[str], subprocess.Popen[bytes]], plan: Plan) -> Told:
    """Starts the learners, watches them for a while, kills one, and watches the others."""
    processes = {name: learner(name) for name in plan.learners}
    deadline = time.monotonic() + READY_SECONDS_MAX
    while any(len(_steps(folder, name)) < plan.warm_steps for name in processes):
        for name, process in processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended: {(folder / f'{name}.log').read_text()[-2000:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no steps of all in {READY_SECONDS_MAX:.0f} s, in {folder}")
        WATCH.wait(0.2)
    begun = time.monotonic()
    WATCH.wait(plan.before_seconds)
    killed = time.monotonic()
    processes[plan.killed].kill()
    WATCH.wait(plan.after_seconds)
    over = time.monotonic()
    return Told(begun, killed, over, {name: _steps(folder, name) for name in processes})


def gaps(lines: Sequence[Line]) -> list[float]:
    """Seconds from step to step."""
    return [later[0] - earlier[0] for earlier, later in pairwise(lines)]


class Group(subprocess.Popen[bytes]):
    """A process with a session of its own: `kill` ends it and all that it has forked."""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@contextmanager
def groups(folder: Path) -> Iterator[Spawn]:
    """Starts processes that know nothing of this project; none is left at the end.

    Their logs lie in the folder, by name. One torch thread each.
    """
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    started: list[Group] = []

    def spawn(name: str, *command: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            started.append(Group(command, stdout=log, stderr=log, env=env, start_new_session=True))
        return started[-1]

    try:
        yield spawn
    finally:
        for process in started:
            process.kill()
            process.wait()


def environment(place: Path, *packages: str) -> Path:
    """The Python of an environment that has these packages: made once, and anew if they change."""
    python, have = place.absolute() / "bin" / "python", place / "packages.txt"
    wanted = "\n".join(packages)
    if not have.exists() or have.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        have.write_text(wanted)
    return python


def _steps(folder: Path, name: str) -> list[Line]:
    """All whole lines that a learner has told so far."""
    told = folder / f"{name}.steps"
    lines = told.read_text().split("\n")[:-1] if told.exists() else []
    return [tuple(map(float, line.split())) for line in lines]


def _longest(begun: float, steps: Sequence[Line], over: float) -> float:
    return max(gaps([(begun,), *steps, (over,)]))
