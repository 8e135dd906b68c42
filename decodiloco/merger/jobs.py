"""Orders as a merger works on them: each once, however often it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from blake3 import blake3

from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.order import MergeOrder
from decodiloco.merge.room import WAITING_MAX, Room
from decodiloco.merger.orders import (
    Answer,
    Done,
    Failed,
    Result,
    Working,
    decode_order,
    encode_answer,
)
from decodiloco.store.blobs import BlobStore
from streams.errors import Failure, Unreadable

KEPT_MAX = 256  # jobs whose answer may still be asked for

Tell = Callable[[MergeOrder, Result | Failure], None]


class Jobs:
    """Merges under way and done, by the digest of their order.

    A job that failed is forgotten once that is told: asked for again, it begins anew. `at_once`
    compute with `threads` each; `tell` hears, in a job's thread, what came of it.
    """

    def __init__(self, store: BlobStore, run: str, at_once: int, threads: int, tell: Tell) -> None:
        self.done = 0
        self._store = store
        self._run = run
        self._threads = threads
        self._tell = tell
        self._room = Room(at_once)
        self._pool = ThreadPoolExecutor(at_once + WAITING_MAX, thread_name_prefix="merge")
        self._jobs: dict[bytes, Future[Result]] = {}

    @property
    def working(self) -> int:
        """How many are under way."""
        return sum(not job.done() for job in self._jobs.values())

    def answer(self, question: bytes) -> bytes:
        """The answer to an order as it stands now; one that is new begins."""
        return encode_answer(self._answer(question))

    def close(self) -> None:
        """Nothing begins any more; what runs in a thread ends by itself."""
        self._room.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, question: bytes) -> Answer:
        key = blake3(question).digest()
        job = self._jobs.get(key)
        if job is None:
            try:
                order = decode_order(question)
            except Unreadable as error:
                return Failed(str(error))
            if order.run != self._run:
                return Failed(f"an order of run {order.run}; this merger serves {self._run}")
            if self.working >= WAITING_MAX:
                return Failed(f"{WAITING_MAX} orders are under way here already")
            self._jobs[key] = self._pool.submit(self._carried_out, order)
            self._forget()
            return Working()
        if not job.done():
            return Working()
        try:
            return Done.of(job.result())
        except (Exception, asyncio.CancelledError) as error:
            del self._jobs[key]
            return Failed(f"{type(error).__name__}: {error}")

    def _carried_out(self, order: MergeOrder) -> Result:
        with self._room as room:
            try:
                result = carry_out(order, self._store, self._threads, room.sleep)
            except Failure as error:
                self._tell(order, error)
                raise
        self.done += 1
        self._tell(order, result)
        return result

    def _forget(self) -> None:
        """Lets go of the oldest answers."""
        while len(self._jobs) > KEPT_MAX:
            oldest = next(key for key, job in self._jobs.items() if job.done())
            del self._jobs[oldest]
