"""What a start costs: commands over an interpreter that does nothing, a demo's way to a merge.

A command's figure is processor time, as the system counts it for a child: other work on the machine
changes that less than the wall. A demo is many processes that wait for each other: only the wall
tells how long one waits for its first merge, and only on a quiet machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from replay.place import open_tape
from streams.events import (
    DeltaOffered,
    Event,
    FragmentMerged,
    LearnerJoined,
    RoundOpened,
    RunOpened,
    SyncerTookOver,
)
from tests.bench.figures import Figure, at_most
from tests.tidy.house import ROOT

TAPE = str(ROOT / "tests/golden/tapes/live.tape")
NOTHING = "-c", "pass"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "decodiloco --help": ("decodiloco.cli", "--help"),
    "replay --help": ("replay.cli", "--help"),
    "replay show": ("replay.cli", "show", TAPE),
    "replay diff": ("replay.cli", "diff", TAPE, TAPE),
    "decodiloco status": ("decodiloco.cli", "status", "nats://127.0.0.1:9/nowhere"),
}
IMPORTED = {  # what a role loads before it can do anything
    "syncer": "decodiloco.syncer.service",
    "recorder": "replay.recorder",
    "archive": "decodiloco.archive.keeper",
    "learner": "decodiloco.training.trainer",
}
SHOW_MAX = 30.0  # times an empty interpreter: pydantic, typer and the events are most of it
DEMO_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Go:
    """One child's seconds, by the wall and of the processor."""

    wall_seconds: float
    processor_seconds: float


def figures(quick: bool) -> Iterator[Figure]:
    """Commands and roles; in full also the demo, with the loops compiled before and without."""
    if quick:
        yield from _commands(["decodiloco --help", "replay show"], goes=3)
        return
    yield from _commands([*COMMANDS, *IMPORTED], goes=4)
    with tempfile.TemporaryDirectory() as cache:
        fresh = demo_parts({"NUMBA_CACHE_DIR": cache})
    for name, parts in (("", demo_parts({})), (", nothing compiled before", fresh)):
        told = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts.items())
        yield Figure(f"start: demo to its first merge{name}", parts["merge"], "s", None, told)


def _commands(names: Sequence[str], goes: int) -> Iterator[Figure]:
    taken: dict[str, list[Go]] = {name: [] for name in ("nothing", *names)}
    for number in range(goes + 1):
        for name, each in taken.items():
            go = _run(_program(name))
            if number:  # the first fills the caches
                each.append(go)
    for name in names:
        pairs = zip(taken[name], taken["nothing"], strict=True)
        ratio = median(one.processor_seconds / none.processor_seconds for one, none in pairs)
        busy = min(go.processor_seconds for go in taken[name])
        wall = min(go.wall_seconds for go in taken[name])
        yield Figure(
            f"start: {name}", ratio, "x nothing", at_most(SHOW_MAX) if "show" in name else None,
            f"{1e3 * busy:.0f} ms of the processor, {1e3 * wall:.0f} by the wall, "
            f"{_modules(name)} modules",
        )  # fmt: skip


def _program(name: str) -> tuple[str, ...]:
    if name in COMMANDS:
        return "-m", *COMMANDS[name]
    return ("-c", f"import {IMPORTED[name]}") if name in IMPORTED else NOTHING


def _run(program: Sequence[str]) -> Go:
    """Runs a program of this interpreter; what it prints and how it ends are not looked at."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Go(time.perf_counter() - began, used.ru_utime + used.ru_stime)


def _modules(name: str) -> int:
    """How many modules are loaded at the end of a command or of a role's import."""
    count = "import sys; print(len(sys.modules))"
    if name in IMPORTED:
        program = f"import {IMPORTED[name]}\n{count}"
    else:
        module, *arguments = COMMANDS[name]
        program = (
            f"import sys, {module}\nsys.argv = {[name, *arguments]}\n"
            f"try:\n    {module}.main()\nexcept SystemExit:\n    pass\n{count}"
        )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return int(told.stdout.splitlines()[-1])


def demo_parts(environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds from a demo's start to each part of its way to the first merge.

    And `processor`: what all of its processes together had taken when two merges were stored.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "demo"
        began = time.time()
        demo = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "decodiloco.cli",
                "demo",
                "--dir",
                str(folder),
                "--kill",
                "none",
            ],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until_merged(folder, demo)
            processor_seconds = _processor_seconds(demo.pid)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60.0)
        server = (folder / "nats" / "port").stat().st_mtime
        parts = {"server": server - began, **_parts(folder, began)}
        return {**parts, "processor": processor_seconds}


def _until_merged(folder: Path, demo: subprocess.Popen[bytes]) -> None:
    """Waits until two merges are stored: the first then stands on the tape."""
    watch = threading.Event()  # never set: something to wait on
    deadline = time.monotonic() + DEMO_SECONDS_MAX
    while sum(1 for _ in folder.glob("store/*/global/f*/1-*")) < 2:
        assert demo.poll() is None, "the demo ended by itself"
        assert time.monotonic() < deadline, f"no merge in {DEMO_SECONDS_MAX:.0f} s"
        watch.wait(0.05)


def _processor_seconds(pid: int) -> float:
    """Of a process, of those of its children that have ended, and of those that live."""
    demo = psutil.Process(pid)
    ended = demo.cpu_times()
    seconds = ended.children_user + ended.children_system
    for process in (demo, *demo.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            seconds += used.user + used.system
    return float(seconds)


def _parts(folder: Path, began: float) -> dict[str, float]:
    """When each of the first facts was written; of the joins, the last before the first round."""
    names: dict[type[Event], str] = {
        RunOpened: "opened",
        SyncerTookOver: "syncer leads",
        LearnerJoined: "all joined",
        RoundOpened: "round",
        DeltaOffered: "offer",
        FragmentMerged: "merge",
    }
    parts: dict[str, float] = {}
    for envelope in open_tape(folder):
        name = names.get(type(envelope.event))
        if name is not None and (
            name not in parts or (name == "all joined" and "round" not in parts)
        ):
            parts[name] = envelope.time_seconds - began
        if name == "merge":
            break
    return parts
