"""How long it takes to look back: a state of a long tape, and a proof beside the merges alone.

The state is that of a process of its own, its imports among its seconds. The proof is in this one,
whose imports every run pays once.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from decodiloco.merge.fragment import Merged, MergeOrder, merge_fragment
from decodiloco.merge.self_test import self_test
from decodiloco.store.blobs import BlobStore
from decodiloco.store.open_store import open_store
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import merge_order
from replay.cli import usable_cores
from replay.place import find_place
from replay.progress import silently
from replay.tape_index import FileRecords
from replay.verify import verify_place
from streams.events import FragmentMerged
from tests.bench.figures import Figure, Target, Times, at_most, interleaved, seconds_of
from tests.bench.long_tape import LongTape
from tests.real_run import RealRun

FACTS = 1_000_000
FACTS_QUICK = 20_000
STEPS = 24
STEPS_QUICK = 12
GOES = 3


class SmoothRun(RealRun):
    """A run in which nothing goes wrong, of fragments that take a while to merge."""

    rows = 1 << 20

    def _hardships(self) -> Iterator[object]:
        return iter(())


class SmallSmoothRun(SmoothRun):
    rows = 1 << 18


def figures(quick: bool) -> Iterator[Figure]:
    """Seconds of one state, and how much longer than its merges a proof takes."""
    with tempfile.TemporaryDirectory() as folder:
        yield _state(Path(folder), FACTS_QUICK if quick else FACTS)
    with tempfile.TemporaryDirectory() as folder:
        if quick:  # of fragments so small that the facts weigh more than they do in a run
            yield from _proof(Path(folder), SmallSmoothRun, STEPS_QUICK, None)
        else:
            yield from _proof(Path(folder), SmoothRun, STEPS, at_most(1.2))


def _state(folder: Path, facts: int) -> Figure:
    """The state that is farthest from the snapshot before it, near the end of the tape.

    What grows with the tape is the pass over its bytes: of a shorter one, this is multiplied.
    """
    tape = LongTape(folder).write(facts)
    asked = tape.stretches[-1]
    goes = [_asked(tape.path, asked) for _ in range(GOES)]
    processor, wall = (min(each) for each in zip(*goes, strict=True))
    pass_ = min(seconds_of(lambda: FileRecords(tape.path).close(), time.process_time) for _ in goes)
    more = pass_ * (FACTS / facts - 1.0)
    told = (
        f"processor, imports in it; wall {wall:.2f}; {facts:,} facts, of which {pass_:.2f} s for "
        f"the pass over {tape.path.stat().st_size / 1e6:.0f} MB"
    )
    if more > 0.0:
        told += f"; {more:.2f} s added for the rest of a million"
    return Figure(
        "replay: state of a million facts from a snapshot", processor + more, "s", at_most(2.0),
        told,
    )  # fmt: skip


def _asked(tape: Path, position: int) -> tuple[float, float]:
    """Processor and wall seconds of `replay state`."""
    command = [sys.executable, "-m", "replay.cli", "state", str(tape), "--at", str(position)]
    before, begun = _children_seconds(), time.perf_counter()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    wall = time.perf_counter() - begun
    told = json.loads(done.stdout)
    assert told["position"] == position and 0 < told["snapshot"] < position, told
    return _children_seconds() - before, wall


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _proof(
    folder: Path, kind: type[SmoothRun], steps: int, target: Target | None
) -> Iterator[Figure]:
    """A proof's seconds over those of its merges, made again as many at once.

    Both clocks are read in the same goes. The processor's is the sounder one beside other work; the
    wall's also counts what one core waits for while the other does what is not a merge.
    """
    run = kind(open_store((folder / "store").as_uri()), steps=steps).play()
    place, cores = find_place(run.save_tape(folder / "run.tape")), usable_cores()
    orders = list(_orders(run))
    with ThreadPoolExecutor(cores, initializer=self_test) as pool:

        def merge() -> None:
            made = pool.map(lambda order: _merged(order, run.store), orders)
            assert all(made)

        def prove() -> None:
            proof = verify_place(place, cores, silently)
            assert proof.ok and proof.merges_checked == len(orders), proof

        spent: dict[str, list[float]] = {"proof": [], "merges": []}
        works = {
            "proof": lambda: spent["proof"].append(seconds_of(prove, time.process_time)),
            "merges": lambda: spent["merges"].append(seconds_of(merge, time.process_time)),
        }
        walls = interleaved(works, GOES)
    processor = {name: Times(tuple(each[1:])) for name, each in spent.items()}
    for clock, taken in (("wall", walls), ("processor", processor)):
        told = ", ".join(f"{work} {times.least:.2f} s" for work, times in taken.items())
        yield Figure(
            f"replay: verify on {cores} cores, {clock} time", taken["proof"].over(taken["merges"]),
            "of merges", target, f"{len(orders)} merges of 3 deltas; {told}",
        )  # fmt: skip


def _orders(run: RealRun) -> Iterator[MergeOrder]:
    """The merges of a run, as they were asked for."""
    state = begin(run.opening)
    for envelope in run.tape:
        if isinstance(envelope.event, FragmentMerged):
            yield merge_order(state, envelope.event.round)
        state = fold(state, envelope)


def _merged(order: MergeOrder, store: BlobStore) -> bool:
    return isinstance(merge_fragment(order, store), Merged)
