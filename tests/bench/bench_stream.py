"""A whole merge from a store: reading, checking, decoding, merging, and the new version's digests.

Held against what would take longest alone: reading and checking the same blobs with as many
readers, or merging what is in memory. Peak memory is that of a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from decodiloco.local.s3_server import S3Server
from decodiloco.merge.ahead import READERS
from decodiloco.merge.crew import Crew
from decodiloco.merge.fragment import Merged, MergeOrder, merge_fragment
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import open_tensors
from tests.bench.bench_merge import Arrays
from tests.bench.figures import Figure, at_least, at_most, interleaved
from tests.bench.stored import MEGABYTE, order_of, put_all
from tests.merge_orders import RUN

GOES = 3


def figures(quick: bool) -> Iterator[Figure]:
    """The share of the slower part's rate, a store each; and the memory of a large merge."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = {"file": open_store((folder / "blobs").as_uri())}
        if not quick:
            server = stack.enter_context(S3Server.start(folder / "s3"))
            stores["S3"] = server.store("bench", 60.0)
        for name, store in stores.items():
            yield _overlap(name, store, learners=4, megabytes=32 if quick else 128)
        if not quick:  # whose new version waits in a file
            yield _overlap("file", stores["file"], learners=4, megabytes=160)
        if quick:
            yield _memory(folder / "large", learners=4, megabytes=100)
        else:
            yield _memory(folder / "large", learners=16, megabytes=400)


def _overlap(name: str, store: BlobStore, learners: int, megabytes: int) -> Figure:
    """How much of the slower part's rate is left when all is done at once."""
    order = order_of(put_all(store, learners, megabytes))

    def merge() -> None:
        assert isinstance(merge_fragment(order, store), Merged)

    arrays = Arrays.drawn("fp32", learners, megabytes * MEGABYTE // 4)
    works: dict[str, Callable[[], object]] = {
        "whole": merge,
        "read": lambda: _read(order, store),
        "merge": arrays.merging("radial", Crew()),
    }
    taken = interleaved(works, GOES)
    slower = max((taken["read"], taken["merge"]), key=lambda times: times.least)
    told = ", ".join(f"{work} {1e3 * times.least:.0f} ms" for work, times in taken.items())
    return Figure(
        f"stream: {learners} deltas of {megabytes} MB, {name}", slower.over(taken["whole"]),
        "of slower", at_least(0.6), told,
    )  # fmt: skip


def _read(order: MergeOrder, store: BlobStore) -> None:
    """Reads and checks every chunk that the merge does, in the same order."""
    key = global_key(RUN, order.fragment, 0, order.parameters)
    named = [(one.key, one.manifest) for one in order.contributions]
    blobs = [open_tensors(store, *each) for each in [*named, (key, order.parameters)]]
    chunks = [(blob, index) for index in range(blobs[0].chunk_count) for blob in blobs]
    with ThreadPoolExecutor(READERS) as pool:
        for _ in pool.map(lambda each: each[0].chunk(each[1]).nbytes, chunks):
            pass


def _memory(folder: Path, learners: int, megabytes: int) -> Figure:
    """The peak of a process that does nothing but one merge from files, and stores what it made."""
    store = open_store(folder.as_uri())
    told = put_all(store, learners, megabytes)
    command = [sys.executable, "-m", "tests.bench.one_merge", store.url]
    run = subprocess.run(command, input=told, capture_output=True, text=True, check=True)
    before, peak = (1024 * each / 1e6 for each in json.loads(run.stdout))
    return Figure(
        f"memory: {learners} deltas of {megabytes} MB from files", peak, "MB", at_most(1000.0),
        f"{before:.0f} before the merge; the new version is {2 * megabytes}",
    )  # fmt: skip
