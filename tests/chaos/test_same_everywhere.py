"""The same proof, states and model files on any CPU: whole commands where abilities are hidden.

Each place is a process that is told to use fewer instructions, another hash seed, or another
number of threads. What it prints and writes must be the same to the byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from decodiloco.store.open_store import open_store
from tests.chaos.tampering import replay, told_by
from tests.real_run import RealRun
from tests.unit.test_arithmetic_everywhere import hideable

AT_ONCE = 2

Place = tuple[int, Mapping[str, str]]

pytestmark = pytest.mark.timeout(280)


def places() -> list[Place]:
    """Every pairing of threads, torch's abilities and numpy's; hash seeds taken in turn."""
    seeds = itertools.cycle(("0", "1", "4242"))
    hidden: list[dict[str, str]] = [{}]
    if hideable():
        hidden.append({"NPY_DISABLE_CPU_FEATURES": hideable()})
    return [
        (threads, {"ATEN_CPU_CAPABILITY": torch, **numpy, "PYTHONHASHSEED": next(seeds)})
        for threads in (1, 2)
        for torch in ("default", "avx2")
        for numpy in hidden
    ]


def told_at(place: Place, folder: Path, steps: Iterable[int], aside: Path) -> tuple[object, ...]:
    """The proof, the table of tokens, and for each step the state told and its model file."""
    threads, environment = place
    told: list[object] = []
    done = replay("verify", folder, "--threads", threads, "--fragments", "--json", **environment)
    assert done.returncode == 0, done.stdout
    told += [told_by(done), done.stdout]
    for step in steps:
        model = aside / f"{id(place)}-{step}.safetensors"
        done = replay("state", folder, "--step", step, "-o", model, "--json", **environment)
        assert done.returncode == 0, done.stderr
        told += [told_by(done), model.read_bytes()]
        model.unlink()
    return tuple(told)


def check_same(everywhere: list[Place], folder: Path, steps: Iterable[int], aside: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda place: told_at(place, folder, steps, aside), everywhere))
    for place, one in zip(everywhere, told, strict=True):
        assert one == told[0], (place, everywhere[0])


@pytest.mark.long
def test_a_run_with_hardships_gives_the_same_proof_and_states_everywhere(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    run.save_tape(tmp_path / "run.tape")

    check_same(places(), tmp_path, (0, 5, run.state.step), tmp_path)


@pytest.mark.long
def test_a_real_demo_gives_the_same_proof_and_states_everywhere(
    finished_demo: Path, tmp_path: Path
) -> None:
    first, *_, last = places()  # the two that have the least in common

    check_same([first, last], finished_demo, (7, 24), tmp_path)
