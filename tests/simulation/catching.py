"""How many seeds each planted fault needs to be caught; `python -m tests.simulation.catching`
measures it for all of them and writes `caught.json`, from which the reference page is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from replay.world.world import World
from tests.plain_fold import PlainFold
from tests.simulation.planted_bugs import BUGS, planted

MERGES = 40
CAUGHT = Path(__file__).with_name("caught.json")


def catch(name: str, likely: int = 1) -> tuple[str, int]:
    """The invariant that a fault broke last, and in which of the seeds that it may need.

    The likely one is played first, then all others in order.
    """
    bug = BUGS[name]
    second = PlainFold if bug.plain_fold else None
    broken = ""
    for number in sorted(range(bug.seeds_max), key=lambda each: each + 1 != likely):
        with planted(bug):
            told = World(bug.first_seed + number, MERGES, second=second).play()
        broken = told.broken.invariant if told.broken else broken
        if broken == bug.invariant:
            return broken, number + 1
    return broken, bug.seeds_max


def measured() -> dict[str, int]:
    """What was measured last, by the fault's name."""
    found: dict[str, int] = json.loads(CAUGHT.read_text())
    return found


def measure(names: list[str]) -> int:
    """Measures these faults, or all; how many were not caught by the invariant that is named."""
    found = measured() if names and CAUGHT.exists() else {}
    missed = 0
    for name in names or BUGS:
        broken, seeds = catch(name)
        is_caught = broken == BUGS[name].invariant
        missed += not is_caught
        found[name] = seeds if is_caught else 0
        print(f"{seeds:3} {name}: {broken}{'' if is_caught else ' NOT AS NAMED'}", flush=True)
    CAUGHT.write_text(json.dumps({name: found.get(name, 0) for name in BUGS}, indent=1) + "\n")
    return missed


if __name__ == "__main__":
    sys.exit(min(1, measure(sys.argv[1:])))
