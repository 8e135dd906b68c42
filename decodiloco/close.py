"""`decodiloco close`: asks a run to end in good order, and waits until that is on its tape."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing

from decodiloco.visit import Address, Visit, visited
from streams.errors import Trouble
from streams.events import RunClosed, RunClosing

PATIENCE_SECONDS = 30.0
SPEAKER = "operator"


async def close_run(address: Address) -> str:
    """Says RunClosing and waits for it on the tape; a line that tells what stands there.

    A run that is closing or closed already is left as it is. Raises Trouble when no syncer
    takes the word up in time.
    """
    async with visited(address, SPEAKER) as visit:
        last = await visit.tape.last()
        after, told = 0, None
        while after < last:
            for envelope in await visit.tape.read(after):
                after = envelope.position
                told = _told(envelope.event, after) or told
        if told is not None:
            return f"run {address.run}: {told} already"
        return f"run {address.run}: {await _ask(visit, last)}"


async def _ask(visit: Visit, after: int) -> str:
    life = 1 + secrets.randbelow(2**53 - 1)
    await visit.inbox.say(RunClosing(speaker=SPEAKER, life=life, said=1, reason="asked"))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(visit.tape.follow(after)) as facts:
            async for envelope in facts:
                told = _told(envelope.event, envelope.position)
                if told is not None:
                    return told
    except TimeoutError:
        pass
    raise Trouble(
        f"run {visit.tape.run}: the word is left in the inbox, but no syncer took it up in "
        f"{PATIENCE_SECONDS:.0f} s; start one and it will"
    )


def _told(event: object, position: int) -> str | None:
    match event:
        case RunClosing(reason=reason):
            return f"closing ({reason}) since position {position}"
        case RunClosed(step=step):
            return f"closed at position {position}, after {step} merges"
        case _:
            return None
