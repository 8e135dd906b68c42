"""The door of the seeded world: reads which seeds are asked for, plays them, prints what came.

Heavy imports stand inside the functions, so that `replay --help` answers at once.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.commit import commit
from replay.progress import progress
from streams.errors import AskedWrongly

if TYPE_CHECKING:
    from replay.world.campaign import Campaign

SEEDS = re.compile(r"(\d+)\.\.(\d+)")


def simulate(
    seed: Annotated[int | None, typer.Option(min=0, help="One world.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Many worlds: seeds A to B - 1.")
    ] = None,
    hardships: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these, of those that a seed draws: kinds such as cut-off, or single ones "
            "such as cut-off.1, with commas between; `none` for none; `list` tells all kinds.",
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--dir", help="Where failing seeds leave their record.")
    ] = Path("runs/simulated"),
    keep: Annotated[
        bool, typer.Option("--keep", help="With --seed: leave the record of a sound world, too.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Worlds at once; all cores by default.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object as the last line of stdout.")
    ] = False,
) -> None:
    """Play whole runs in a seeded world, with hardships, and check every invariant.

    Exits 1 when an invariant breaks, or when many seeds never took a rare branch. A failing seed
    is shrunk to the hardships that it needs, and leaves its record for the other commands.
    """
    if hardships == "list":
        _print_kinds()
        return
    from replay.world import campaign

    wanted = _wanted(hardships)
    asked = _asked(seed, seeds)
    count = processes or os.cpu_count() or 1
    began = time.monotonic()
    with progress("simulating") as tell:
        told = campaign.run_campaign(asked, wanted, folder, count, tell)
    seconds = time.monotonic() - began
    if keep and seed is not None and told.ok:
        world = campaign.play(seed, wanted)
        world.play()
        print(f"record: {campaign.keep(world, folder / f'seed-{seed}')}")
    for line in _lines(told, seconds):
        print(line)
    if as_json:
        print(json.dumps(_as_json(told, seconds)), flush=True)
    if not told.ok:
        raise typer.Exit(1)


def _asked(seed: int | None, seeds: str | None) -> range:
    if (seed is None) == (seeds is None):
        raise AskedWrongly("name one world with --seed N, or many with --seeds A..B")
    if seed is not None:
        return range(seed, seed + 1)
    match = SEEDS.fullmatch(seeds or "")
    if match is None or int(match[1]) >= int(match[2]):
        raise AskedWrongly(f"--seeds {seeds}: write it as A..B, such as 0..200; B is not played")
    return range(int(match[1]), int(match[2]))


def _wanted(hardships: str | None) -> tuple[str, ...] | None:
    from replay.world.plan import KINDS

    if hardships is None:
        return None
    names = () if hardships == "none" else tuple(name for name in hardships.split(",") if name)
    for name in names:
        if name.split(".")[0] not in KINDS:
            raise AskedWrongly(f"no hardship {name!r}; `--hardships list` tells them all")
    return names


def _print_kinds() -> None:
    from replay.world.plan import KINDS

    for name in sorted(KINDS):
        print(f"{name:16} {KINDS[name].says}")


def _lines(told: Campaign, seconds: float) -> Iterator[str]:
    """What came of it, for a person."""
    rate = 60 * told.seeds / max(seconds, 1e-9)
    yield (
        f"{told.seeds} worlds, {told.events:,} facts, {told.merges:,} merges "
        f"(at least {told.merges_min or 0} in each), "
        f"{told.checked.total():,} checks in {seconds:.0f} s ({rate:.0f} worlds a minute)"
    )
    for name in sorted(told.checked):
        yield f"  {told.checked[name]:>12,}  {name}"
    for branch in told.missed:
        yield f"NEVER TAKEN: {branch}"
    if told.missed:
        yield "  play other seeds; what none takes, no hardship comes to any more"
    for failed in told.failed:
        yield f"FAILED seed {failed.seed}, commit {commit()}: {failed.what}"
        yield f"  again: {failed.command}"
        yield f"  record: {failed.folder}"
    yield f"tape digest {told.tape_digest.hex()[:16]}" + ("" if told.failed else "; all held")


def _as_json(told: Campaign, seconds: float) -> dict[str, object]:
    return {
        "ok": told.ok,
        "seeds": told.seeds,
        "failed": [
            {
                "seed": failed.seed,
                "invariant": failed.invariant,
                "what": failed.what,
                "command": failed.command,
                "record": failed.folder,
            }
            for failed in told.failed
        ],
        "events": told.events,
        "merges": told.merges,
        "merges_min": told.merges_min or 0,
        "tape_digest": told.tape_digest.hex(),
        "checked": dict(told.checked),
        "branches": dict(told.branches),
        "never_taken": list(told.missed),
        "commit": commit(),
        "seconds": round(seconds, 2),
    }
