"""Orders as a merger answers them: each is one job, however often it is asked for."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Protocol

from blake3 import blake3

from decodiloco.merge.order import MergeOrder
from decodiloco.merge.room import WAITING_MAX
from decodiloco.merger.orders import (
    Answer,
    Done,
    Failed,
    Result,
    Working,
    decode_order,
    encode_answer,
)
from streams.errors import Unreadable

KEPT_MAX = 256  # jobs whose answer may still be asked for


class Crew(Protocol):
    """Who carries orders out, beside whoever answers."""

    def begin(self, order: MergeOrder) -> Future[Result]:
        """One order's result, once its bytes are stored."""
        ...


class Jobs:
    """Merges under way and done, by the digest of their order.

    A job that failed is forgotten once that is told: asked for again, it begins anew.
    """

    def __init__(self, run: str, crew: Crew) -> None:
        self._run = run
        self._crew = crew
        self._jobs: dict[bytes, Future[Result]] = {}

    @property
    def working(self) -> int:
        """How many are under way."""
        return sum(not job.done() for job in self._jobs.values())

    def answer(self, question: bytes) -> bytes:
        """The answer to an order as it stands now; one that is new begins."""
        return encode_answer(self._answer(question))

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
            self._jobs[key] = self._crew.begin(order)
            self._forget()
            return Working()
        if not job.done():
            return Working()
        try:
            return Done.of(job.result())
        except (Exception, asyncio.CancelledError) as error:
            del self._jobs[key]
            return Failed(f"{type(error).__name__}: {error}")

    def _forget(self) -> None:
        """Lets go of the oldest answers."""
        while len(self._jobs) > KEPT_MAX:
            oldest = next(key for key, job in self._jobs.items() if job.done())
            del self._jobs[oldest]
