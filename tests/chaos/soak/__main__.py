"""`python -m tests.chaos.soak --minutes 30`: hurts a real cluster, heals it, and says what held.

Exit code 0 when every figure is within its bound, else 1; the folder is kept either way.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.soak.report import lines_of, write_json
from tests.chaos.soak.settings import PACE_SECONDS
from tests.chaos.soak.soak import Asked, soak


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, help="what strikes when; drawn if not given")
    parser.add_argument("--dir", type=Path, help="a new folder for everything; made if not given")
    parser.add_argument("--kind", action="append", help="only these kinds of fault")
    asked = parser.parse_args(words)
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    folder = asked.dir or Path(tempfile.mkdtemp(prefix=f"soak-{seed}-"))
    print(f"soak of {asked.minutes:g} minutes, seed {seed}, in {folder}", flush=True)
    report = asyncio.run(soak(Asked(seed, asked.minutes, folder.resolve(), asked.kind)))
    print("\n".join(lines_of(report, PACE_SECONDS)))
    print(f"written: {write_json(report)}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all is ended with us
    sys.exit(main())
