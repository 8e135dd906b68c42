"""`make bench`: one line a figure, and all of them as JSON. Compare only what one run has taken.

python -m tests.bench [--quick] [--room merge --room record] [--json bench.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tests.bench import (
    bench_burden,
    bench_bytes,
    bench_goodput,
    bench_hivemind,
    bench_load,
    bench_merge,
    bench_record,
    bench_replay,
    bench_start,
    bench_stream,
    bench_torchft,
)
from tests.bench.figures import Figure

Room = Callable[[bool], Iterator[Figure]]

ROOMS: dict[str, Room] = {
    "record": bench_record.figures,
    "replay": bench_replay.figures,
    "load": bench_load.figures,
    "merge": bench_merge.figures,
    "stream": bench_stream.figures,
    "bytes": bench_bytes.figures,
    "goodput": bench_goodput.figures,
    "burden": bench_burden.figures,
    "start": bench_start.figures,
    "torchft": bench_torchft.figures,
    "hivemind": bench_hivemind.figures,
}
"""Each gives its figures; told to be quick, a part of them."""


def main() -> None:
    """Takes and prints the figures of the rooms."""
    asked = _asked()
    begun = time.monotonic()
    taken: list[Figure] = []
    for room in asked.room or ROOMS:
        for figure in ROOMS[room](asked.quick):
            print(figure, flush=True)
            taken.append(figure)
    seconds = time.monotonic() - begun
    missed = [figure.name for figure in taken if figure.met is False]
    print(f"{len(taken)} figures in {seconds:.0f} s; {len(missed)} targets missed")
    told = {
        "command": ["python", "-m", "tests.bench", *sys.argv[1:]],
        "machine": machine(),
        "seconds": round(seconds, 1),
        "figures": [figure.as_json() for figure in taken],
    }
    asked.json.write_text(json.dumps(told, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": psutil.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "releases": {name: version(name) for name in ("numpy", "numba", "torch", "blake3")},
    }


def _processor() -> str:
    """The processor's name, where the system tells it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a part, in under 3 minutes")
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this; may be repeated")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
