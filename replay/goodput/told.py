"""Results as tables for people and as values for JSON. Works nothing out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from replay.goodput import bandwidth, checkpoints, paper
from replay.goodput.barrier import Barred
from replay.goodput.rounds import RoundsOutcome
from replay.goodput.scavenging import Scavenged
from replay.goodput.study import Cell, Errors

WIDTH = 110


def show(*tables: Table | str) -> None:
    """Prints to stdout, 110 columns wide when that is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    for table in tables:
        console.print(table)


def cell_json(cell: Cell) -> dict[str, object]:
    """The fields of a cell, in percent."""
    return {
        "learners": cell.learners,
        "elastic": cell.elastic,
        "chips": cell.chips,
        "goodput": round(cell.goodput, 2),
        "uptime": round(cell.uptime, 2),
        "failures_clock": cell.clock,
        "goodput_error": round(cell.goodput_error, 3),
        "badput": {kind: round(share, 3) for kind, share in cell.badput.items()},
    }


def errors_json(errors: Errors) -> dict[str, float]:
    """Points from the paper's table."""
    return {name: round(value, 3) for name, value in asdict(errors).items()}


def rounds_json(outcome: RoundsOutcome) -> dict[str, object]:
    """The rounds; token shares and the wait in percent."""
    return {
        "opened": outcome.opened,
        "merges": outcome.merges,
        "contributors": list(outcome.contributors),
        "contributors_mean": round(outcome.contributors_mean, 3),
        "weights_effective": round(outcome.weights_effective, 3),
        "steps_between_versions": round(outcome.steps_between_versions, 3),
        "tokens": {kind: round(100 * share, 3) for kind, share in outcome.tokens.items()},
        "syncer_wait": round(100 * outcome.syncer_wait, 3),
    }


def paper_table(cells: Sequence[Cell], what: str, title: str) -> Table:
    """Table 1: ours, and the paper's figure in brackets."""
    table = _table(title, "", *(f"{chips / 1e6:g} M" for chips in paper.CHIPS))
    told = {(cell.learners, cell.elastic, cell.chips): cell for cell in cells}
    for row in paper.TABLE_1:
        ours = [told[row.learners, row.elastic, chips] for chips in paper.CHIPS]
        theirs = row.goodput if what == "goodput" else row.uptime
        values = [cell.goodput if what == "goodput" else cell.uptime for cell in ours]
        pairs = zip(values, theirs, strict=True)
        table.add_row(row.name, *(f"{mine:.1f} ({other})" for mine, other in pairs))
    return table


def errors_line(clock: str, errors: Errors) -> str:
    """One line under the tables of a clock."""
    return (
        f"{clock} clock: {errors.mean:.2f} points from the paper on average over 60 figures "
        f"(goodput {errors.mean_goodput:.2f}, uptime {errors.mean_uptime:.2f}), "
        f"at most {errors.largest:.1f}\n"
    )


def cells_table(cells: Sequence[Cell]) -> Table:
    """One cluster by each clock: all classes, which add up to 100 %."""
    table = _table("share of all chip time, percent", "", *(f"{one.clock} clock" for one in cells))
    spread = (f"{one.goodput:.2f} ± {one.goodput_error:.2f}" for one in cells)
    table.add_row("goodput (useful)", *spread)
    for kind in cells[0].badput:
        table.add_row(kind, *(f"{one.badput[kind]:.2f}" for one in cells))
    table.add_section()
    sums = (one.goodput + sum(one.badput.values()) for one in cells)
    table.add_row("sum", *(f"{total:.2f}" for total in sums))
    table.add_row("uptime", *(f"{one.uptime:.2f}" for one in cells))
    for k in sorted({max(1, cells[0].learners // 2), cells[0].learners}):
        told = (f"{one.up_at_least[k]:.2f}" for one in cells)
        table.add_row(f"at least {k} learners step", *told)
    table.add_row("failures in a run", *(f"{one.failures:,.0f}" for one in cells))
    return table


def rounds_table(outcome: RoundsOutcome, barrier: Barred, quorum: int) -> Table:
    """What the rounds do on top, and what a barrier would cost instead."""
    table = _table(f"rounds on top, K = {quorum}", "", "")
    table.add_row("merges", f"{outcome.merges:,} of {outcome.opened:,} opened")
    table.add_row("learners in a merge", f"{outcome.contributors_mean:.2f}")
    table.add_row("of which count, by weight", f"{outcome.weights_effective:.2f}")
    table.add_row("steps between two versions", f"{outcome.steps_between_versions:.1f}")
    for kind, share in outcome.tokens.items():
        table.add_row(f"work {kind.replace('_', ' ')}", f"{100 * share:.1f} %")
    table.add_row("waiting for the syncer", f"{100 * outcome.syncer_wait:.2f} %")
    table.add_section()
    table.add_row("goodput with a barrier instead", f"{100 * barrier.goodput:.1f} %")
    table.add_row("waiting at that barrier", f"{100 * barrier.quorum_wait:.1f} %")
    return table


def bandwidth_rows() -> list[dict[str, object]]:
    """Table 13: each figure of ours with the paper's."""
    return [
        {
            "step_seconds": step_seconds,
            "sites": sites,
            "method": traffic.name,
            "utilisation": round(100 * utilisation),
            "gigabits_per_second": round(
                bandwidth.gigabits_needed(traffic, utilisation, step_seconds, sites), 4
            ),
            "paper": told,
        }
        for (step_seconds, sites), methods in paper.TABLE_13.items()
        for traffic, theirs in zip(bandwidth.traffics(), methods, strict=True)
        for utilisation, told in zip(paper.UTILISATIONS, theirs, strict=True)
    ]


def bandwidth_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """One line a setting and method, the paper's figures in brackets."""
    heads = (f"{100 * utilisation:g} %" for utilisation in paper.UTILISATIONS)
    table = _table("Gbit/s for a compute utilisation, 5 B model", "step, sites", "method", *heads)
    width = len(paper.UTILISATIONS)
    for begin in range(0, len(rows), width):
        line = rows[begin : begin + width]
        pairs = (f"{one['gigabits_per_second']:.3g} ({one['paper']:g})" for one in line)
        where = f"{line[0]['step_seconds']:g} s, {line[0]['sites']} sites"
        table.add_row(where, str(line[0]["method"]), *pairs)
    return table


def checkpoints_table(rows: Sequence[Mapping[str, float | str]]) -> Table:
    """The exact formula beside the simulation, and where the time went."""
    table = _table(
        "data parallel with checkpoints, percent", "", "Daly", "simulated",
        *checkpoints.CLASSES[1:],
    )  # fmt: skip
    for row in rows:
        numbers = (f"{row[name]:.1f}" for name in ("daly", *checkpoints.CLASSES))
        table.add_row(str(row["name"]), *numbers)
    return table


def scavenging_table(told: Mapping[str, Scavenged], ideal: float) -> Table:
    """Time to the budget against the base alone, and the extra learners' badput."""
    table = _table("time to the budget, base alone = 1", "", "time", "badput", "changes")
    for name, one in told.items():
        badput = 100 * (1 - one.shares["useful"])
        table.add_row(name, f"{one.relative_time:.4f}", f"{badput:.2f} %", str(one.changes))
    table.add_row("ideal: all of it used", f"{ideal:.4f}", "", "")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table
