"""`python -m tests.chaos.scavenging`: time to a token budget with learners that come and go.

Each `--extra` (percent of the base, 100 if not given) is a run of real processes; the base alone
runs at the same time as all of them. Exit code 1 when a time is not within 5 % of the ideal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.scavenging.trial import Asked, Scavenged, scavenge

WITHIN = 0.05
HEAD = "extra | seconds | of base | ideal | ratio | with starts | starts | left, worst | stepping"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.scavenging", description=__doc__)
    parser.add_argument("--extra", type=int, action="append", help="percent of the base")
    parser.add_argument("--base", type=int, default=4, help="learners that are always there")
    parser.add_argument("--budget-seconds", type=float, default=480.0, help="time of the base")
    parser.add_argument("--nights", type=int, default=2, help="how often extra learners come")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds from step to step")
    parser.add_argument("--cold", action="store_true", help="no process is started ahead")
    asked = parser.parse_args(words)
    trial = Asked(asked.base, asked.budget_seconds, asked.nights, asked.pace, asked.cold)
    extras = [percent * asked.base // 100 for percent in asked.extra or [100]]
    folder = Path(tempfile.mkdtemp(prefix="scavenging-"))
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load {load} on {os.cpu_count()} cores, in {folder}", flush=True)
    alone, *found = asyncio.run(together(folder, trial, [0, *extras]))
    print("\n".join(table(alone, found)))
    if all(abs(one.seconds / alone.seconds / one.ideal - 1) <= WITHIN for one in found):
        shutil.rmtree(folder)
        return 0
    return 1


async def together(folder: Path, trial: Asked, extras: Sequence[int]) -> list[Scavenged]:
    """These runs, all at the same time: whatever else the machine does strikes each alike."""
    runs = [scavenge(folder / str(extra), trial, extra) for extra in extras]
    return await asyncio.gather(*runs)


def table(alone: Scavenged, found: Sequence[Scavenged]) -> list[str]:
    """One line a run: its time, that of the base alone as 1, and what it should have been."""
    lines = [HEAD]
    for one in (alone, *found):
        relative = one.seconds / alone.seconds
        starts = one.start_seconds
        mean = f"{len(starts)} of {sum(starts) / len(starts):.1f} s" if starts else "-"
        worst = f"{len(one.left_seconds)}, {max(one.left_seconds):.1f} s" if starts else "-"
        lines.append(
            f"+{100 * one.extra // one.asked.base} % | {one.seconds:.1f} | {relative:.3f} | "
            f"{one.ideal:.3f} | {relative / one.ideal:.3f} | {one.with_starts:.3f} | "
            f"{mean} | {worst} | {100 * one.stepping_share:.2f} %"
        )
    return lines


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
