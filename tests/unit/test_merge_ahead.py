"""Blobs of several chunks, read ahead by other threads while the first chunks are merged."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest

from decodiloco.errors import BlobMissing
from decodiloco.merge import merge_tensor, outer_step
from decodiloco.merge.ahead import AHEAD_CHUNKS, Readers, chunks_ahead
from decodiloco.merge.fragment import Merged, MergeOrder, merge_fragment
from decodiloco.store.blobs import BlobStore
from decodiloco.store.header import CHUNK_BYTES
from decodiloco.store.keys import global_key
from decodiloco.store.tensors import Part, encode_tensors, open_tensors, read_tensors
from tests.merge_orders import RUN, FragmentBench, digests, filled, tensor

TENSORS = (tensor("long", (2_200_000,)), tensor("short", (77,), rule="mean"))
LAST = "l2"


class Watched:
    """A store that counts how often each range is read, and fails the first read of some."""

    def __init__(self, store: BlobStore, fails: str = "") -> None:
        self._store = store
        self._fails = fails
        self._lock = threading.Lock()
        self.reads: Counter[tuple[str, int]] = Counter()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        with self._lock:
            self.reads[key, start] += 1
            first = self.reads[key, start] == 1
        if self._fails and self._fails in key and start > CHUNK_BYTES and first:
            raise BlobMissing(f"blob {key} is not there yet")
        return self._store.read(key, start, stop, anew)


@pytest.fixture(scope="module")
def bench() -> FragmentBench:
    return FragmentBench("ahead", TENSORS)


@pytest.fixture(scope="module")
def order(bench: FragmentBench) -> MergeOrder:
    """Three fp32 deltas, each of two chunks."""
    deltas = {f"l{place}": filled(1, 1.0 + place, TENSORS) for place in range(3)}
    coded = {name: encode_tensors(delta, "fp32", squares=True) for name, delta in deltas.items()}
    return bench.order(coded, delta_codec="fp32", norm_clip=None)


def test_any_number_of_threads_merges_blobs_of_many_chunks_alike(
    bench: FragmentBench, order: MergeOrder
) -> None:
    one, three = merge_fragment(order, bench.store), merge_fragment(order, bench.store, threads=3)
    assert isinstance(one, Merged) and isinstance(three, Merged)
    assert digests(one) == digests(three)

    for key, parts in one.blobs(order):
        bench.store.put(key, parts)
    made = read_tensors(
        bench.store, global_key(RUN, 0, 1, one.parameters.manifest), one.parameters.manifest
    )
    deltas = [read_tensors(bench.store, each.key, each.manifest) for each in order.contributions]
    weights = [each.weight for each in order.contributions]
    before = filled(99, tensors=TENSORS)
    for each in TENSORS:
        gradient = merge_tensor([delta[each.name] for delta in deltas], weights, each.rule)
        parameter, _ = outer_step(before[each.name], gradient * 0, gradient, lr=0.7, mu=0.9)
        assert np.array_equal(made[each.name], parameter)


def test_each_chunk_is_read_once(bench: FragmentBench, order: MergeOrder) -> None:
    store = Watched(bench.store)
    assert isinstance(merge_fragment(order, store), Merged)
    assert set(store.reads.values()) == {1}


def test_what_a_reader_cannot_get_is_asked_for_once_more(
    bench: FragmentBench, order: MergeOrder
) -> None:
    store = Watched(bench.store, fails=f"/{LAST}/")
    merged = merge_fragment(order, store)
    assert isinstance(merged, Merged) and len(merged.contributions) == 3


def test_a_chunk_that_is_gone_leaves_its_delta_out(bench: FragmentBench, order: MergeOrder) -> None:
    class Gone(Watched):
        def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
            if f"/{LAST}/" in key and start > CHUNK_BYTES:
                raise BlobMissing(f"blob {key} is gone")
            return super().read(key, start, stop, anew)

    merged = merge_fragment(order, Gone(bench.store))
    assert isinstance(merged, Merged)
    assert [each.reason for each in merged.left_out] == ["missing"]


def test_few_blobs_have_more_chunks_ahead_and_many_have_one_each() -> None:
    assert [chunks_ahead(blobs) for blobs in (3, 6, 9, 18, 25, 300)] == [8, 4, 2, 1, 1, 1]
    assert all(
        blobs * chunks_ahead(blobs) <= max(blobs, AHEAD_CHUNKS) for blobs in range(1, 100)
    )  # fmt: skip


class Counting:
    """A store that notes, at each read, which chunk it is and which one was asked for last."""

    def __init__(self, store: BlobStore, payload_start: int) -> None:
        self._store = store
        self._payload_start = payload_start
        self.asked = 0
        self.seen: list[tuple[int, int]] = []
        self.news = threading.Condition()

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        with self.news:
            self.seen.append(((start - self._payload_start) // CHUNK_BYTES, self.asked))
            self.news.notify()
        return self._store.read(key, start, stop, anew)

    def has_read(self, chunk: int) -> bool:
        with self.news:
            return self.news.wait_for(lambda: chunk in [each for each, _ in self.seen], 10)


def test_so_many_chunks_are_begun_ahead_and_no_more(bench: FragmentBench) -> None:
    coded = encode_tensors({"long": np.zeros(9_000_000, np.float32)}, "fp32")
    bench.store.put("trial/long", coded.parts)
    blob = open_tensors(bench.store, "trial/long", coded.manifest)
    assert blob.chunk_count == 5
    store = Counting(bench.store, coded.manifest.bytes - 36_000_000)

    with Readers(store) as readers:
        pieces = readers.ahead(blob, chunks=2).chunks("long", CHUNK_BYTES // 4)
        assert store.has_read(1)
        for chunk in range(5):
            store.asked = chunk
            next(pieces)
            assert store.has_read(min(chunk + 2, 4))

    assert sorted(chunk for chunk, _ in store.seen) == [0, 1, 2, 3, 4]
    assert all(chunk <= asked + 2 for chunk, asked in store.seen)


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_chunk_may_be_asked_for_out_of_turn(
    bench: FragmentBench, order: MergeOrder, chunks: int
) -> None:
    one = order.contributions[0]
    blob = open_tensors(bench.store, one.key, one.manifest)
    with Readers(bench.store) as readers:
        ahead = readers.ahead(blob, chunks)
        for name in ("short", "long", "short"):
            assert np.array_equal(ahead.read(name), blob.read(name))
