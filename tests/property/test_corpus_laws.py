"""Laws of shards and batches: disjoint, complete, and continued exactly from any cursor."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from decodiloco.training.shards import Batches, order_of, shard_of
from streams.codec import pack, unpack


def numbered(size: int) -> np.ndarray:
    """Tokens that name their own place; a text longer than 256 needs wider tokens than bytes."""
    return np.arange(size, dtype=np.int64)


@given(some.integers(0, 3000), some.integers(1, 20), some.integers(1, 12))
def test_shards_share_no_token_and_leave_out_less_than_one_window(size, context, shards):
    parts = [shard_of(numbered(size), context, shard, shards) for shard in range(shards)]

    tokens = sorted(int(token) for part in parts for token in part.ravel())

    assert tokens == list(range(size // (context + 1) * (context + 1)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(some.integers(0, 100), some.integers(0, 2**53), some.integers(1, 500))
def test_the_order_of_a_pass_is_a_permutation(shard, number, windows):
    assert sorted(order_of(shard, number, windows)) == list(range(windows))


def test_the_order_of_a_pass_is_the_same_for_ever():
    assert order_of(0, 0, 8).tolist() == [0, 6, 3, 1, 4, 2, 7, 5]
    assert order_of(3, 1, 8).tolist() == [4, 5, 6, 2, 3, 7, 0, 1]


@given(some.integers(3, 40), some.integers(1, 3), some.integers(0, 60), some.integers(0, 60))
def test_a_walk_continued_twice_is_the_walk_that_was_never_stopped(windows, sequences, one, two):
    text = shard_of(numbered(windows * 5), 4, 0, 1)
    whole = Batches(text, 7, sequences)
    expected = [whole.take().tolist() for _ in range(one + two + 5)]

    taken = []
    cursor = None
    for count in (one, two, 5):
        life = Batches(text, 7, sequences)
        if cursor is not None:
            life.resume(unpack(pack(cursor), 1024))
        taken += [life.take().tolist() for _ in range(count)]
        cursor = life.cursor

    assert taken == expected


@given(some.integers(1, 60), some.data())
def test_a_pass_takes_no_window_twice_and_leaves_less_than_one_batch(windows, data):
    sequences = data.draw(some.integers(1, windows))
    batches = Batches(shard_of(numbered(windows * 3), 2, 0, 1), 0, sequences)

    seen = Counter(int(row[0]) for _ in range(batches.per_pass) for row in batches.take())

    assert set(seen.values()) == {1}
    assert windows - len(seen) < sequences
    assert batches.cursor == {"pass": 1, "batch": 0}
