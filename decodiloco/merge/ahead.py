"""Blobs read ahead: while one chunk is merged, the next ones are fetched and checked by others.

So what is in memory is a few chunks of each blob, whatever their size: one that is merged, and a
share of those that may be ahead. Waits for nothing: what a reader cannot get is left to the one
who asks for it, and to his patience.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from decodiloco.store.tensors import Ranges, TensorBlob
from streams.errors import Failure

T = TypeVar("T")

READERS = 4
"""Threads that read for one merge: enough to hide the round trips of an object store."""

AHEAD_CHUNKS = 24
"""Chunks of 8 MiB that the blobs of a merge may have ahead together, or one each if that is more.

With only one each a step would wait for chunk after chunk of the parameters: none is asked for
before the deltas of a whole tensor are added up.
"""


def chunks_ahead(blobs: int) -> int:
    """How many chunks each of so many blobs may have ahead."""
    return max(1, AHEAD_CHUNKS // blobs)


class Readers:
    """Threads that read from a store for one merge."""

    def __init__(self, store: Ranges) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    def __enter__(self) -> Readers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ahead(self, blob: TensorBlob, chunks: int = 1) -> TensorBlob:
        """The same blob, opened once more, read front to back and so many chunks ahead.

        One of a single chunk is read when it is asked for: there is nothing to overlap.
        """
        return blob.fed_by(_Ahead(blob, self, chunks).chunk) if blob.chunk_count > 1 else blob

    def start(self, blob: TensorBlob, index: int) -> Future[memoryview]:
        """Begins to read one chunk."""
        return self._pool.submit(blob.chunk, index, self._store)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Has something done with what was made, beside whoever makes the rest."""
        return self._pool.submit(work)


class _Ahead:
    """The chunks of a blob that will be asked for next, and are read meanwhile."""

    def __init__(self, blob: TensorBlob, readers: Readers, chunks: int) -> None:
        assert chunks > 0
        self._blob = blob
        self._readers = readers
        self._chunks = chunks
        self._began: deque[tuple[int, Future[memoryview]]] = deque()
        self._begin(0)

    def chunk(self, index: int) -> memoryview:
        """One checked chunk; those after it are begun."""
        while self._began and self._began[0][0] < index:
            self._began.popleft()
        if not self._began or self._began[0][0] > index:  # out of turn
            self._began.clear()
            self._begin(index + 1)
            return self._blob.chunk(index)
        _, began = self._began.popleft()
        self._begin(index + 1)
        try:
            return began.result()
        except Failure:
            return self._blob.chunk(index)  # asked for once more, by who may wait for it

    def _begin(self, index: int) -> None:
        """Begins what is still missing of the chunks from this one on."""
        first = self._began[-1][0] + 1 if self._began else index
        for later in range(first, min(index + self._chunks, self._blob.chunk_count)):
            self._began.append((later, self._readers.start(self._blob, later)))
