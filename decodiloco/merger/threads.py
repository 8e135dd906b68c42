"""Orders carried out in a merger's threads: so many compute at once, others wait for bytes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.order import MergeOrder
from decodiloco.merge.room import WAITING_MAX, Room
from decodiloco.merger.orders import Result
from decodiloco.store.blobs import BlobStore
from streams.errors import Failure

Tell = Callable[[MergeOrder, Result | Failure], None]


class Threads:
    """`at_once` orders compute with `threads` each; `tell` hears in its thread what came of one."""

    def __init__(self, store: BlobStore, at_once: int, threads: int, tell: Tell) -> None:
        self.done = 0
        self._counting = Lock()
        self._store = store
        self._threads = threads
        self._tell = tell
        self._room = Room(at_once)
        self._pool = ThreadPoolExecutor(at_once + WAITING_MAX, thread_name_prefix="merge")

    def begin(self, order: MergeOrder) -> Future[Result]:
        """Begins one order, or lets it wait for its room."""
        return self._pool.submit(self._carried_out, order)

    def close(self) -> None:
        """Nothing begins any more; what runs in a thread ends by itself."""
        self._room.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _carried_out(self, order: MergeOrder) -> Result:
        with self._room as room:
            try:
                result = carry_out(order, self._store, self._threads, room.sleep)
            except Failure as error:
                self._tell(order, error)
                raise
        with self._counting:
            self.done += 1
        self._tell(order, result)
        return result
