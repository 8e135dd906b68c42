"""A learner's share of the training text: windows, their order in each pass, and the cursor.

Nothing here reads a file or draws from a random state: shard and pass alone give the order, so
a cursor of two numbers is exact on any machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from streams.errors import AskedWrongly

Tokens = NDArray[np.uint8]


def shard_of(tokens: Tokens, context: int, shard: int, shards: int) -> Tokens:
    """The windows (rows of context + 1 tokens) of one shard of a text.

    The text is cut into windows that share no token, and these are dealt in turn: shard s gets
    windows s, s + shards, s + 2 shards ... So shards are disjoint, and each sees all of the
    text's kinds. Tokens after the last whole window belong to nobody.
    """
    assert 0 <= shard < shards and tokens.ndim == 1
    size = context + 1
    windows = tokens[: len(tokens) // size * size].reshape(-1, size)
    return windows[shard::shards]


def order_of(shard: int, number: int, windows: int) -> NDArray[np.int64]:
    """The order of a shard's windows in pass `number`: a permutation keyed by both.

    Windows are sorted by 64-bit draws from blake3's output stream; the same on every machine
    and in every version of numpy.
    """
    key = b"decodiloco order 1 %d %d" % (shard, number)
    draws = np.frombuffer(blake3(key).digest(length=8 * windows), dtype="<u8")
    return np.argsort(draws, kind="stable")


class Batches:
    """An endless walk over a shard, pass after pass, that can be continued exactly.

    A pass yields each window at most once, in batches of `sequences`; those that fill no batch
    sit this pass out.
    """

    def __init__(self, windows: Tokens, shard: int, sequences: int) -> None:
        assert len(windows) >= sequences, "read_corpus checks that every shard fills a batch"
        self._windows = windows
        self._shard = shard
        self._sequences = sequences
        self._pass = 0
        self._batch = 0
        self._order = order_of(shard, 0, len(windows))

    @property
    def per_pass(self) -> int:
        """Batches in one pass."""
        return len(self._windows) // self._sequences

    @property
    def cursor(self) -> dict[str, int]:
        """What the next batch is: pass and batch, both from 0."""
        return {"pass": self._pass, "batch": self._batch}

    def resume(self, cursor: Any) -> None:
        """Goes to where `cursor` stood. Raises AskedWrongly for what is no cursor of ours."""
        match cursor:
            case {"pass": int(number), "batch": int(batch), **rest} if not rest:
                pass
            case _:
                raise AskedWrongly(f"{str(cursor)[:80]!r} is no cursor of the built-in trainer")
        if not (0 <= number <= 2**53 and 0 <= batch < self.per_pass):
            raise AskedWrongly(
                f"a cursor at pass {number}, batch {batch}, but a pass of this shard has "
                f"{self.per_pass} batches; is this the text that the run was trained on?"
            )
        self._enter(number, batch)

    def take(self) -> NDArray[np.int64]:
        """The next batch, (sequences, context + 1), and one step on."""
        first = self._batch * self._sequences
        batch = self._windows[self._order[first : first + self._sequences]].astype(np.int64)
        if self._batch + 1 < self.per_pass:
            self._batch += 1
        else:
            self._enter(self._pass + 1, 0)
        return batch

    def _enter(self, number: int, batch: int) -> None:
        if number != self._pass:
            self._order = order_of(self._shard, number, len(self._windows))
        self._pass = number
        self._batch = batch
