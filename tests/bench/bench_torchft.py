"""A straggler and a kill, beside torchft's DiLoCo: the same naps for steps, 1 M parameters.

torchft comes into an environment of its own, `.venv/bench`, by pip; it is installed once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Event

from tests.bench.figures import Figure, at_least, at_most
from tests.real_cluster import RealCluster

FAST = ("a", "b", "c")
STEP_SECONDS = {"a": 0.05, "b": 0.05, "c": 0.05, "d": 0.5}
STEPS_PER_SYNC = 12
PLACE = Path(".venv/bench")
PACKAGES = ("torch==2.13.0", "torchft-nightly", "numpy")
READY_SECONDS_MAX = 120.0
WARM_STEPS = 24
STRAGGLED_SECONDS = 30.0
KILLED_SECONDS = 40.0
MODEL = {"layers": 5, "width": 128, "heads": 4, "context": 16}

WATCH = Event()
"""Never set: what passes while it is waited for is what is measured."""

Spawn = Callable[[str], subprocess.Popen[bytes]]


@dataclass(frozen=True, slots=True)
class Story:
    """What the fast learners did beside a straggler, and when one of them was killed."""

    steps_per_second: float
    step_seconds: float
    longest_before_seconds: float
    longest_after_seconds: float

    @property
    def stalls(self) -> str:
        """The longest time without a step of a fast learner, after the kill and before it."""
        return f"{self.longest_after_seconds:.3f} s (before: {self.longest_before_seconds:.3f} s)"


def figures(quick: bool) -> Iterator[Figure]:
    """Two figures; none when quick. A stall of the whole watch of 40 s means that none stepped."""
    if quick:
        return
    theirs, ours = _torchft(), _ours()
    yield Figure(
        "torchft: steps/s of fast learners beside a straggler",
        ours.steps_per_second / theirs.steps_per_second,
        "x torchft's",
        at_least(1.9),
        f"{ours.steps_per_second:.3g} against {theirs.steps_per_second:.3g} steps/s of three",
    )
    yield Figure(
        "torchft: longest stall of fast survivors of a kill",
        ours.longest_after_seconds / ours.step_seconds,
        "steps",
        at_most(2.0),
        f"ours {ours.stalls}; torchft {theirs.stalls}",
    )


def _torchft() -> Story:
    python = _installed()
    port = _free_port()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def spawn(name: str, *command: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((Path(folder) / f"{name}.log").open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        script = str(Path(__file__).with_name("torchft_learner.py"))
        bind, survivors = f"127.0.0.1:{port}", str(len(STEP_SECONDS) - 1)
        lighthouse = str(python.with_name("torchft_lighthouse"))
        spawn("lighthouse", lighthouse, "--bind", bind, "--min_replicas", survivors)

        def learner(name: str) -> subprocess.Popen[bytes]:
            seconds = str(STEP_SECONDS[name])
            return spawn(name, str(python), script, f"http://{bind}", name, seconds, folder)

        return _told(Path(folder), learner)


def _ours() -> Story:
    window = {"step_seconds": STEP_SECONDS["a"], "upload_seconds": 0.05, "overlap": 3}
    with (
        tempfile.TemporaryDirectory() as place,
        RealCluster(Path(place), model=MODEL, inner_steps=STEPS_PER_SYNC, window=window) as cluster,
    ):
        cluster.start("syncer", "syncer")

        def learner(name: str) -> subprocess.Popen[bytes]:
            config, seconds = str(Path(place) / "run.toml"), str(STEP_SECONDS[name])
            module = "tests.bench.napping_learner"
            cluster.spawn(name, sys.executable, "-m", module, config, name, seconds, place)
            return cluster.processes[name]

        return _told(Path(place), learner)


def _told(folder: Path, learner: Spawn) -> Story:
    """Starts the learners, watches them for a while, kills one, and watches the others."""
    processes = {name: learner(name) for name in STEP_SECONDS}
    deadline = time.monotonic() + READY_SECONDS_MAX
    while any(len(_steps(folder, name)) < WARM_STEPS for name in STEP_SECONDS):
        for name, process in processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended: {(folder / f'{name}.log').read_text()[-2000:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no steps of all in {READY_SECONDS_MAX:.0f} s, in {folder}")
        WATCH.wait(0.2)
    begun = time.monotonic()
    WATCH.wait(STRAGGLED_SECONDS)
    killed = time.monotonic()
    processes["a"].send_signal(signal.SIGKILL)
    WATCH.wait(KILLED_SECONDS)
    over = time.monotonic()
    before = {name: _steps(folder, name, begun, killed) for name in FAST}
    after = {name: _steps(folder, name, killed, over) for name in FAST[1:]}
    return Story(
        steps_per_second=sum(map(len, before.values())) / (killed - begun),
        step_seconds=median(_gaps([begun, *before["b"]])),
        longest_before_seconds=max(
            max(_gaps([begun, *steps, killed])) for steps in before.values()
        ),
        longest_after_seconds=max(max(_gaps([killed, *steps, over])) for steps in after.values()),
    )


def _steps(folder: Path, name: str, begun: float = 0.0, over: float = float("inf")) -> list[float]:
    """When this learner's steps ended, of those between two times."""
    told = folder / f"{name}.steps"
    lines = told.read_text().split("\n")[:-1] if told.exists() else []
    return [at for line in lines if begun <= (at := float(line.split()[0])) < over]


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def _installed() -> Path:
    """torchft's own Python, after one installation."""
    python = PLACE.absolute() / "bin" / "python"
    if not python.with_name("torchft_lighthouse").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
