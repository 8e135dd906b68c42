"""`python -m tests.chaos.failover`: kills and stops real processes, and prints figures with bounds.

Takes about twelve minutes; `--only syncer --tries 3` is a part of it. Exit code 1 when a bound is
not met. Run it on a machine that does nothing else: the first line says how busy it was.
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

from tests.chaos.failover.trials import TRIALS


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.failover", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(TRIALS))
    parser.add_argument("--tries", type=int, help="of each; 10, and 20 of the stops, if not given")
    asked = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="failover-"))
    all_met = True
    for name, (trial, tries) in TRIALS.items():
        if asked.only and name not in asked.only:
            continue
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"{name}: load {load} on {os.cpu_count()} cores, in {folder / name}", flush=True)
        for figure in asyncio.run(trial(folder / name, asked.tries or tries)):
            print(figure, flush=True)
            all_met = all_met and figure.met
    if all_met:
        shutil.rmtree(folder)
    return 0 if all_met else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
