"""`decodiloco close`: asks a run to end in good order, and waits until that is on its tape."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import aclosing

from decodiloco.times import close_seconds
from decodiloco.visit import Address, Visit, records_to, visited
from streams.errors import Trouble
from streams.events import RunClosed, RunClosing, Word

SPEAKER = "operator"


async def close_run(address: Address) -> str:
    """Says RunClosing and waits for it on the tape; a line that tells what stands there.

    A run that is closing or closed already is left as it is. Raises Trouble when no syncer
    takes the word up in time.
    """
    async with visited(address, SPEAKER) as visit:
        last = await visit.tape.last()
        told = None
        async for envelope in records_to(visit.tape, last):
            told = _told(envelope.event, envelope.position) or told
        if told is not None:
            return f"run {address.run}: {told} already"
        word = RunClosing(speaker=SPEAKER, life=new_life(), said=1, reason="asked")
        return f"run {address.run}: {await ask(visit, word, _told, last)}"


def new_life() -> int:
    """The life of somebody who says one word: no word of another life is taken for it."""
    return 1 + secrets.randbelow(2**53 - 1)


async def ask(
    visit: Visit, word: Word, told: Callable[[object, int], str | None], after: int
) -> str:
    """Says a word, and waits behind this position for a fact that `told` can tell of.

    Raises Trouble when no syncer takes the word up in time.
    """
    await visit.inbox.say(word)
    seconds = close_seconds(visit.opening.run.times)
    try:
        async with asyncio.timeout(seconds), aclosing(visit.tape.follow(after)) as facts:
            async for envelope in facts:
                line = told(envelope.event, envelope.position)
                if line is not None:
                    return line
    except TimeoutError:
        pass
    raise Trouble(
        f"run {visit.tape.run}: the word is left in the inbox, but no syncer took it up in "
        f"{seconds:.0f} s; start one and it will"
    )


def _told(event: object, position: int) -> str | None:
    match event:
        case RunClosing(reason=reason):
            return f"closing ({reason}) since position {position}"
        case RunClosed(step=step):
            return f"closed at position {position}, after {step} merges"
        case _:
            return None
