"""A run's tape read from its server, by callers that know nothing of event loops."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from streams.address import address_of
from streams.chain import Chain
from streams.envelope import Envelope
from streams.errors import StreamMissing, Trouble
from streams.jetstream import connect
from streams.tape import Tape

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


def _read_through(loop: LoopThread, tape: Tape) -> Iterator[Envelope]:
    last = loop.wait_for(tape.last())
    chain = Chain(tape.run)
    while chain.position < last:
        batch = loop.wait_for(tape.read(chain.position))
        if not batch:
            raise Trouble(
                f"run {tape.run}: the server gave nothing after position {chain.position}, "
                f"though the tape ends at {last}; is the stream being deleted?"
            )
        for envelope in batch:
            chain = chain.then(envelope)
            yield envelope
            if chain.position == last:
                return


async def _first(tape: Tape, url: str) -> Envelope:
    found = await tape.read(0, 1)
    if not found:
        shown = address_of(url)
        raise StreamMissing(f"run {tape.run}: the server at {shown} holds no record of it")
    return found[0]
