"""Blobs read ahead: while one chunk is merged, the next is fetched and checked in another thread.

So what is in memory is two chunks of each blob, whatever their size. Waits for nothing: what a
reader cannot get is left to the one who asks for it, and to his patience.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from decodiloco.store.tensors import Ranges, TensorBlob
from streams.errors import Failure

READERS = 4
"""Threads that read for one merge: enough to hide the round trips of an object store."""


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

    def ahead(self, blob: TensorBlob) -> TensorBlob:
        """The same blob, opened once more, read front to back and ahead.

        One of a single chunk is read when it is asked for: there is nothing to overlap.
        """
        return blob.fed_by(_Ahead(blob, self).chunk) if blob.chunk_count > 1 else blob

    def start(self, blob: TensorBlob, index: int) -> Future[memoryview]:
        """Begins to read one chunk."""
        return self._pool.submit(blob.chunk, index, self._store)

    def digest(self, work: Callable[[], bytes]) -> Future[bytes]:
        """Takes a digest of what was made, beside whoever makes the rest."""
        return self._pool.submit(work)


class _Ahead:
    """The chunk of a blob that will be asked for next, and is read meanwhile."""

    def __init__(self, blob: TensorBlob, readers: Readers) -> None:
        self._blob = blob
        self._readers = readers
        self._next: tuple[int, Future[memoryview]] | None = 0, readers.start(blob, 0)

    def chunk(self, index: int) -> memoryview:
        """One checked chunk; the one after it is begun."""
        began, self._next = self._next, None
        if index + 1 < self._blob.chunk_count:
            self._next = index + 1, self._readers.start(self._blob, index + 1)
        if began is not None and began[0] == index:
            try:
                return began[1].result()
            except Failure:
                pass  # asked for once more, by who may wait for it
        return self._blob.chunk(index)
