"""The door of the goodput model: reads what was asked, runs it, prints it as tables or JSON.

Heavy imports stand inside the functions, so that `replay --help` answers at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.options import JsonOption, print_json
from replay.progress import progress
from streams.errors import AskedWrongly

if TYPE_CHECKING:
    from decodiloco.local.availability import Availability
    from replay.goodput.settings import Clock, Scenario
    from replay.goodput.study import Length

CHECKPOINT_FAILURES = 20_000
DAYS, SEEDS, ROUNDS_DAYS = 1.4, 5, 0.25

TraceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TRACE",
        help="Extra learners that come and go: a trace file (JSON or CSV), `work` (there "
        "during half of the work) or `clock` (there for part of each day).",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Such as costs.up_seconds=25."),
]
TapeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write a run on this cluster as a synthetic tape into this folder."
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option(metavar="run.toml", help="With --tape: the run; it must have an end."),
]
FailuresOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=1e6,
        help="With --tape: so many failures of the cluster in the run; by default as many as in "
        "as many steps of the cluster.",
    ),
]
PlotOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="With --table: a .html, .svg or .png to write."),
]


def goodput(
    table: Annotated[
        bool, typer.Option("--table", help="The paper's table 1: 30 clusters, beside its figures.")
    ] = False,
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="The paper's table 13: Gbit/s by utilisation.")
    ] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Checkpointed jobs against Daly's formula.")
    ] = False,
    scavenge: TraceOption = None,
    chips: Annotated[int | None, typer.Option(help="Chips; 1,200,000 by default.")] = None,
    learners: Annotated[int | None, typer.Option(help="Learners; 8 by default.")] = None,
    elastic: Annotated[
        bool, typer.Option(help="A learner trains on with the slices that are left.")
    ] = True,
    clock: Annotated[
        str, typer.Option(help="When chips fail: executed, wall, or both side by side.")
    ] = "both",
    days: Annotated[float, typer.Option(min=0.001, max=3650, help="Length of a run.")] = DAYS,
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="How many runs.")] = SEEDS,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="The first seed.")] = 0,
    rounds_days: Annotated[
        float, typer.Option(min=0, max=365, help="Length of the rounds on top; 0: none.")
    ] = ROUNDS_DAYS,
    settings: SetOption = None,
    plot: PlotOption = None,
    tape: TapeOption = None,
    run: RunOption = None,
    failures: FailuresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate millions of chips: goodput, uptime, and where the rest of the time goes.

    Without --table, --bandwidth, --checkpoints or --scavenge: one cluster, with the rounds of the
    method on top. The same seed gives the same figures anywhere. With --tape: writes a run that
    nobody trained, under the same failures, for `replay retrain` to train a small model under.
    """
    from replay.goodput.settings import scenario_of
    from replay.goodput.study import Length

    asked = [table, bandwidth, checkpoints, scavenge is not None]
    if sum(asked) > 1:
        raise AskedWrongly("ask for one of --table, --bandwidth, --checkpoints and --scavenge")
    if plot and not table:
        raise AskedWrongly("--plot goes with --table")
    other = table or bandwidth or checkpoints
    _check_tape_options(tape, run, failures, other, (days, seeds, rounds_days))
    cluster = {"chips": chips, "learners": learners, "elastic": None if elastic else False}
    told = {name: value for name, value in cluster.items() if value is not None}
    scenario = scenario_of(settings or [], {"cluster": told})
    begun, length = time.perf_counter(), Length(days, seeds, seed)
    if tape is not None and run is not None:
        scenario = scenario.with_clock(_clocks(clock)[0])
        result = _tape(scenario, tape, run, failures, seed, scavenge)
    elif table:
        result = _table(scenario, _clocks(clock), length, plot or [])
    elif bandwidth:
        result = _bandwidth()
    elif checkpoints:
        result = _checkpoints(seed)
    elif scavenge is not None:
        result = _scavenge(scenario, scavenge)
    else:
        result = _one(scenario, _clocks(clock), length, rounds_days)
    if as_json:
        seconds = round(time.perf_counter() - begun, 3)
        print_json({**result, "seconds": seconds})


def _clocks(told: str) -> list[Clock]:
    match told:
        case "executed":
            return ["executed"]
        case "wall":
            return ["wall"]
        case "both":
            return ["executed", "wall"]
    raise AskedWrongly(f"--clock {told}: executed, wall or both")


def _table(
    scenario: Scenario, clocks: list[Clock], length: Length, plots: list[Path]
) -> Mapping[str, object]:
    from replay.goodput import told
    from replay.goodput.plot import write_plot
    from replay.goodput.study import errors_of, table_of

    with progress("simulating") as tell:
        cells = list(table_of(scenario, clocks, length, tell))
    errors = {}
    for clock in clocks:
        ours = [cell for cell in cells if cell.clock == clock]
        errors[clock] = errors_of(ours)
        for what in ("goodput", "uptime"):
            title = f"{what}, percent: {clock} clock, ours (paper)"
            told.show(told.paper_table(ours, what, title))
        told.show(told.errors_line(clock, errors[clock]))
    for path in plots:
        write_plot(path, cells)
    return {
        "cells": [told.cell_json(cell) for cell in cells],
        "errors": {clock: told.errors_json(one) for clock, one in errors.items()},
    }


def _one(
    scenario: Scenario, clocks: list[Clock], length: Length, rounds_days: float
) -> Mapping[str, object]:
    from replay.goodput import told
    from replay.goodput.study import barrier_of, cell_of, rounds_of

    cells = []
    with progress("simulating") as tell:
        for done, clock in enumerate(clocks, 1):
            cells.append(cell_of(scenario.with_clock(clock), length))
            tell(done, len(clocks))
    told.show(told.cells_table(cells))
    result: dict[str, object] = {"cells": [told.cell_json(cell) for cell in cells]}
    if rounds_days:
        first = scenario.with_clock(clocks[0])
        rounds = rounds_of(first, rounds_days, length.seed)
        barrier = barrier_of(first, rounds_days, length.seed)
        told.show(told.rounds_table(rounds, barrier, scenario.sync.quorum))
        result["rounds"] = told.rounds_json(rounds)
        result["barrier"] = {
            "goodput": round(100 * barrier.goodput, 3),
            "quorum_wait": round(100 * barrier.quorum_wait, 3),
        }
    return result


def _bandwidth() -> Mapping[str, object]:
    from replay.goodput import told

    rows = told.bandwidth_rows()
    told.show(told.bandwidth_table(rows))
    return {"bandwidth": rows}


def _checkpoints(seed: int) -> Mapping[str, object]:
    from replay.goodput import draws, told
    from replay.goodput.checkpoints import daly_efficiency, known_jobs, simulate

    rows: list[dict[str, float | str]] = []
    for index, known in enumerate(known_jobs()):
        stream = draws.uniforms(seed, draws.CHECKPOINTS, index)
        shares = simulate(known.job, CHECKPOINT_FAILURES, stream)
        percent = {kind: round(100 * share, 3) for kind, share in shares.items()}
        rows.append(
            {"name": known.name, "daly": round(100 * daly_efficiency(known.job), 3), **percent}
        )
    told.show(told.checkpoints_table(rows))
    return {"checkpoints": rows}


def _check_tape_options(
    tape: Path | None,
    run: Path | None,
    failures: float | None,
    other: bool,
    length: tuple[float, int, float],
) -> None:
    if tape is None:
        if run is not None or failures is not None:
            raise AskedWrongly("--run and --failures go with --tape")
        return
    if run is None:
        raise AskedWrongly("--tape wants the run that is written: --run run.toml")
    if other:
        raise AskedWrongly("--tape goes with one cluster: no --table, --bandwidth, --checkpoints")
    if length != (DAYS, SEEDS, ROUNDS_DAYS):
        raise AskedWrongly(
            "--days, --seeds and --rounds-days go without --tape: the run's end says how long it is"
        )


def _tape(
    scenario: Scenario,
    tape: Path,
    run: Path,
    failures: float | None,
    seed: int,
    trace: str | None,
) -> Mapping[str, object]:
    from replay.goodput.tape import Asked, tape_lines, write_tape

    there = None if trace is None else _availability(scenario, trace)
    told = write_tape(scenario, Asked(tape, run, failures, seed), there)
    for line in tape_lines(run, told):
        print(line)
    return told


def _availability(scenario: Scenario, trace: str) -> Availability:
    from decodiloco.local.trace_file import read_trace
    from replay.goodput import scavenging

    asked, base = scenario.scavenging, float(scenario.cluster.learners)
    period_seconds = asked.period_hours * 3600.0
    if trace == "work":
        return scavenging.by_work(base, asked.extra, period_seconds)
    if trace == "clock":
        return scavenging.by_clock(asked.extra, period_seconds, asked.share)
    return read_trace(Path(trace))


def _scavenge(scenario: Scenario, trace: str) -> Mapping[str, object]:
    from replay.goodput import scavenging, told
    from replay.goodput.settings import DAY_SECONDS

    asked, base = scenario.scavenging, float(scenario.cluster.learners)
    there = _availability(scenario, trace)
    budget_seconds = asked.budget_days * DAY_SECONDS
    found = {
        "decoupled": scavenging.decoupled(base, there, budget_seconds, asked.join_seconds),
        "data parallel": scavenging.data_parallel(
            base, there, budget_seconds, asked.resize_seconds, asked.extended_step
        ),
    }
    ideal = scavenging.decoupled(base, there, budget_seconds, 0.0).relative_time
    told.show(told.scavenging_table(found, ideal))
    return {
        "scavenging": {
            name: {
                "relative_time": one.relative_time if math.isfinite(one.relative_time) else None,
                "badput": 100 * (1 - one.shares["useful"]),
                "changes": one.changes,
            }
            for name, one in found.items()
        },
        "ideal": ideal,
    }
