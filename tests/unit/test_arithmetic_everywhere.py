"""The same bits on other CPUs: whole merges in processes that hide this CPU's abilities.

Each process may use fewer instructions (numpy's and torch's dispatch are told so), another hash
seed and another number of threads. All must give the same digests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from numpy._core import _multiarray_umath as numpy_core

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys
import torch
torch.set_num_threads(int(sys.argv[1]))
from decodiloco.merge.self_test import self_test
from decodiloco.merge.fragment import merge_fragment
from tests.golden.test_merge_golden import three_versions
from tests.merge_orders import FragmentBench, digests
told = [self_test().hex(), torch.backends.cpu.get_cpu_capability()]
bench = FragmentBench("everywhere")
for order, merged in three_versions("everywhere"):
    again = merge_fragment(order, bench.store, threads=int(sys.argv[1]))
    assert digests(again) == digests(merged)
    told.append(digests(merged))
print(json.dumps(told))
"""


def hideable() -> str:
    """What numpy may be told not to use: all that it dispatches on and this CPU has."""
    has = numpy_core.__cpu_features__
    return " ".join(name for name in numpy_core.__cpu_dispatch__ if has.get(name))


def told_by(threads: int, **environment: str) -> list[object]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(threads)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    told: list[object] = json.loads(run.stdout.splitlines()[-1])
    return told


def test_any_cpu_any_hash_seed_and_any_number_of_threads_give_the_same_bits() -> None:
    places: list[tuple[int, dict[str, str]]] = [
        (1, {"PYTHONHASHSEED": "0"}),
        (2, {"PYTHONHASHSEED": "1", "ATEN_CPU_CAPABILITY": "default"}),
        (1, {"PYTHONHASHSEED": "2", "ATEN_CPU_CAPABILITY": "avx2"}),
    ]
    if hideable():
        hidden = {"NPY_DISABLE_CPU_FEATURES": hideable()}
        places.append((1, {**hidden, "PYTHONHASHSEED": "3"}))
        places.append((2, {**hidden, "PYTHONHASHSEED": "4", "ATEN_CPU_CAPABILITY": "default"}))
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda place: told_by(place[0], **place[1]), places))
    capabilities = [one.pop(1) for one in told]
    assert capabilities[1] in ("DEFAULT", "NO AVX"), "the environment was not heard"
    assert all(one == told[0] for one in told), [place for _, place in places]
