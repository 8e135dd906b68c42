"""What an outer round costs the thread that trains, and a kill, beside hivemind's averager.

Two learners of 10 M parameters, whose steps are naps; an outer round is H of them. hivemind's
average all parameters after H steps and wait for it, or take it in a round later; ours call
`session.step` at each step. Both send float32. hivemind comes into an environment of its own,
`.venv/bench-hivemind`, by pip; it is installed once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.beside import Line, Plan, Told, environment, gaps, groups, watched
from tests.bench.figures import Figure, at_least, at_most
from tests.real_cluster import RealCluster

FIRST, OTHER = "a", "b"
STEP_SECONDS = 0.05
STEPS_PER_ROUND = 12
FRAGMENTS = 4
PLACE = Path(".venv/bench-hivemind")
PACKAGES = ("torch==2.13.0", "hivemind==1.1.12")
PLAN = Plan((FIRST, OTHER), OTHER, warm_steps=24, before_seconds=7.0, after_seconds=7.0)
MODEL = {"layers": 5, "width": 408, "heads": 8, "context": 16}  # 10.1 M


@dataclass(frozen=True, slots=True)
class Round:
    """From one version of the whole model to the next; still: in averaging or session calls."""

    steps: int
    wall_seconds: float
    still_seconds: float


def figures(quick: bool) -> Iterator[Figure]:
    """Three figures; none when quick."""
    if quick:
        return
    delayed = rounds_of(_hivemind("delays", replace(PLAN, after_seconds=0.0)), 1)
    theirs, ours = _hivemind("waits", PLAN), _ours()
    waited, our_rounds = rounds_of(theirs, 1), rounds_of(ours, FRAGMENTS)
    name = "hivemind: training stands still in an outer round"
    yield Figure(
        name, _still(waited) / _still(our_rounds), "x ours", at_least(4.0),
        f"ours {_written(our_rounds)}; hivemind {_written(waited)}",
    )  # fmt: skip
    yield Figure(
        f"{name}, delayed", _still(delayed) / _still(our_rounds), "x ours", None,
        f"hivemind {_written(delayed)}",
    )  # fmt: skip
    yield Figure(
        "hivemind: longest stall of the survivor of a kill",
        ours.longest_after_seconds(FIRST) / median(gaps(ours.before(FIRST))),
        "steps",
        at_most(2.0),
        f"ours {ours.stalls(FIRST)}; hivemind {theirs.stalls(FIRST)}",
    )


def _hivemind(way: str, plan: Plan) -> Told:
    """`way`: whether a learner `waits` for the average or `delays` it to the next round."""
    python = environment(PLACE, *PACKAGES)
    with tempfile.TemporaryDirectory() as folder, groups(Path(folder)) as spawn:
        script = str(Path(__file__).with_name("hivemind_learner.py"))

        def learner(name: str) -> subprocess.Popen[bytes]:
            return spawn(name, str(python), script, name, FIRST, str(STEP_SECONDS), folder, way)

        return watched(Path(folder), learner, plan)


def _ours() -> Told:
    settings: dict[str, Any] = {
        "model": MODEL,
        "fragments": FRAGMENTS,
        "inner_steps": STEPS_PER_ROUND,
        "window": {"step_seconds": STEP_SECONDS, "upload_seconds": 0.05, "overlap": 3},
        "codecs": {"delta": "fp32"},
    }
    with (
        tempfile.TemporaryDirectory() as place,
        RealCluster(Path(place), **settings) as cluster,
    ):
        cluster.start("syncer", "syncer")

        def learner(name: str) -> subprocess.Popen[bytes]:
            config, module = str(Path(place) / "run.toml"), "tests.bench.napping_learner"
            command = (sys.executable, "-m", module, config, name, str(STEP_SECONDS), place)
            cluster.spawn(name, *command)
            return cluster.processes[name]

        return watched(Path(place), learner, PLAN)


def rounds_of(told: Told, fragments: int) -> list[Round]:
    """The whole rounds of both learners before the kill; a merge is of one of so many fragments."""
    found = []
    for name in PLAN.learners:
        by_version = groupby(told.before(name), lambda line: line[1] // fragments)
        parts = [list(lines) for _, lines in by_version]
        found += [_round(before[-1], lines) for before, lines in pairwise(parts[:-1])]
    if not found:
        raise RuntimeError("no learner had a whole round under watch")
    return found


def _round(before: Line, lines: list[Line]) -> Round:
    return Round(len(lines), lines[-1][0] - before[0], sum(line[2] for line in lines))


def _still(rounds: list[Round]) -> float:
    return median(each.still_seconds for each in rounds)


def _written(rounds: list[Round]) -> str:
    wall = median(each.wall_seconds for each in rounds)
    steps = median(each.steps for each in rounds)
    longest = max(each.still_seconds for each in rounds)
    return (
        f"{1e3 * _still(rounds):.0f} ms (longest {1e3 * longest:.0f}) of a round of {steps:g} "
        f"steps and {wall:.2f} s, {len(rounds)} rounds"
    )
