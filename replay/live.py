"""A run's tape read from its server, by callers that know nothing of event loops."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

from streams.address import address_of
from streams.chain import Chain
from streams.envelope import Envelope
from streams.errors import ChainBroken, StreamMissing, Trouble
from streams.jetstream import connect
from streams.tape import BATCH_MAX, Tape

T = TypeVar("T")

CLIENT = "replay"


class LoopThread:
    """An event loop in a thread of its own, so that plain code can wait for coroutines.

    It works the same in a script, in a notebook and under a loop that runs already.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=CLIENT, daemon=True)

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self.may_be_awaited():
            self._thread.join()
            self._loop.close()

    def may_be_awaited(self) -> bool:
        """Whether waiting for the loop would end.

        A reader that was left half read is closed by the garbage collector: on any thread, this
        loop's own among them, or when the interpreter ends and its daemon threads stand still.
        """
        return not sys.is_finalizing() and threading.current_thread() is not self._thread

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; what it raises is raised here."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def first_live(url: str, run: str) -> Envelope:
    """The first record of a run's tape on this server.

    Raises ServerUnreachable, PermissionDenied or StreamMissing: the reasons why it cannot be
    read from there.
    """

    async def first() -> Envelope:
        connection = await connect(url, CLIENT)
        try:
            return await _first(connection.tape(run), url)
        finally:
            await connection.close()

    with LoopThread() as loop:
        return loop.wait_for(first())


def read_live(url: str, run: str) -> Iterator[Envelope]:
    """Every record that the run's tape holds at this moment, in order and chained."""
    with LoopThread() as loop:
        connection = loop.wait_for(connect(url, CLIENT))
        try:
            tape = connection.tape(run)
            loop.wait_for(_first(tape, url))
            yield from _read_through(loop, tape)
        finally:
            if loop.may_be_awaited():
                loop.wait_for(connection.close())


class LiveRecords:
    """A run's tape on its server by position, up to what is its end now; see `Records`."""

    def __init__(self, url: str, run: str) -> None:
        with ExitStack() as stack:
            self._loop = stack.enter_context(LoopThread())
            connection = self._loop.wait_for(connect(url, CLIENT))
            stack.callback(lambda: self._loop.wait_for(connection.close()))
            self._tape: Tape = connection.tape(run)
            self._loop.wait_for(_first(self._tape, url))
            self.last = self._loop.wait_for(self._tape.last())
            self._open = stack.pop_all()

    def read(self, after: int) -> Iterator[Envelope]:
        """As `Records` says."""
        while after < self.last:
            for envelope in self._batch(after, BATCH_MAX):
                yield envelope
                after = envelope.position

    def back(self, kind: str, upto: int) -> Iterator[Envelope]:
        """As `Records` says."""
        stop = min(upto, self.last)
        while stop > 0:
            start = max(0, stop - BATCH_MAX)
            batch = self._batch(start, stop - start)
            yield from (each for each in reversed(batch) if each.event.kind == kind)
            stop = start

    def close(self) -> None:
        """Lets go of the connection."""
        self._open.close()

    def _batch(self, after: int, limit: int) -> list[Envelope]:
        """At least one record, in order, none beyond the end."""
        found = self._loop.wait_for(self._tape.read(after, min(limit, self.last - after)))
        if not found:
            raise _nothing_after(self._tape.run, after, self.last)
        for position, envelope in enumerate(found, after + 1):
            if envelope.position != position:
                raise ChainBroken(position, f"a record numbered {envelope.position} stands there")
        return found


def _read_through(loop: LoopThread, tape: Tape) -> Iterator[Envelope]:
    last = loop.wait_for(tape.last())
    chain = Chain(tape.run)
    while chain.position < last:
        batch = loop.wait_for(tape.read(chain.position))
        if not batch:
            raise _nothing_after(tape.run, chain.position, last)
        for envelope in batch:
            chain = chain.then(envelope)
            yield envelope
            if chain.position == last:
                return


def _nothing_after(run: str, position: int, last: int) -> Trouble:
    return Trouble(
        f"run {run}: the server gave nothing after position {position}, though the tape ends at "
        f"{last}; is the stream being deleted?"
    )


async def _first(tape: Tape, url: str) -> Envelope:
    found = await tape.read(0, 1)
    if not found:
        shown = address_of(url)
        raise StreamMissing(f"run {tape.run}: the server at {shown} holds no record of it")
    return found[0]
