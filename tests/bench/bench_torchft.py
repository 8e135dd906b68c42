"""A straggler and a kill, beside torchft's DiLoCo: the same naps for steps, 1 M parameters.

torchft comes into an environment of its own, `.venv/bench`, by pip; it is installed once.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.beside import Plan, Told, environment, gaps, groups, watched
from tests.bench.figures import Figure, at_least, at_most
from tests.real_cluster import RealCluster

FAST = ("a", "b", "c")
STEP_SECONDS = {"a": 0.05, "b": 0.05, "c": 0.05, "d": 0.5}
STEPS_PER_SYNC = 12
PLACE = Path(".venv/bench")
PACKAGES = ("torch==2.13.0", "torchft-nightly", "numpy")
PLAN = Plan(tuple(STEP_SECONDS), "a", warm_steps=24, before_seconds=30.0, after_seconds=40.0)
MODEL = {"layers": 5, "width": 128, "heads": 4, "context": 16}


def figures(quick: bool) -> Iterator[Figure]:
    """Two figures; none when quick. A stall of the whole watch of 40 s means that none stepped."""
    if quick:
        return
    theirs, ours = _torchft(), _ours()
    our_rate, their_rate = _steps_per_second(ours), _steps_per_second(theirs)
    yield Figure(
        "torchft: steps/s of fast learners beside a straggler",
        our_rate / their_rate,
        "x torchft's",
        at_least(1.9),
        f"{our_rate:.3g} against {their_rate:.3g} steps/s of three",
    )
    survivors = FAST[1:]
    yield Figure(
        "torchft: longest stall of fast survivors of a kill",
        ours.longest_after_seconds(*survivors) / median(gaps(ours.before("b"))),
        "steps",
        at_most(2.0),
        f"ours {ours.stalls(*survivors)}; torchft {theirs.stalls(*survivors)}",
    )


def _torchft() -> Told:
    python = environment(PLACE, *PACKAGES)
    with tempfile.TemporaryDirectory() as folder, groups(Path(folder)) as spawn:
        script = str(Path(__file__).with_name("torchft_learner.py"))
        bind, survivors = f"127.0.0.1:{_free_port()}", str(len(STEP_SECONDS) - 1)
        lighthouse = str(python.with_name("torchft_lighthouse"))
        spawn("lighthouse", lighthouse, "--bind", bind, "--min_replicas", survivors)

        def learner(name: str) -> subprocess.Popen[bytes]:
            seconds = str(STEP_SECONDS[name])
            return spawn(name, str(python), script, f"http://{bind}", name, seconds, folder)

        return watched(Path(folder), learner, PLAN)


def _ours() -> Told:
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

        return watched(Path(place), learner, PLAN)


def _steps_per_second(told: Told) -> float:
    """Of the fast ones together, beside the straggler."""
    return sum(len(told.before(name)) for name in FAST) / (told.killed - told.begun)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
