"""The tape as a port: one total order of facts, one writer at a time, hash-chained.

Every body (memory, JetStream) obeys the same contract suite.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from streams.envelope import Envelope
from streams.errors import Trouble
from streams.known_end import shorter
from streams.times import APPEND_PATIENCE_SECONDS, SHORTER_SECONDS

BATCH_MAX = 200
LOOKS_MAX = 5


@dataclass(frozen=True, slots=True)
class Stored:
    """The whole batch stands on the tape."""

    last: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing of the batch stands on the tape: somebody else wrote at its first position."""

    why: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer came: the batch may stand on the tape or not."""

    why: str


Outcome = Stored | Refused | Unknown


class Tape(Protocol):
    """One run's tape."""

    run: str

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        """Stores all of `batch` at the positions it carries, or nothing.

        The tape must end just before `batch[0].position`, else the answer is Refused.
        """
        ...

    async def read(self, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
        """At most `limit` records that follow position `after`, as the writer's server has them."""
        ...

    def follow(self, after: int, learner: str | None = None) -> AsyncGenerator[Envelope, None]:
        """Records after a position as they come, without end, in order and without a gap.

        With `learner`, only what the run and that learner need. Rides over lost connections.
        """
        ...

    async def last(self) -> int:
        """The position of the newest record; 0 for an empty tape."""
        ...

    async def close(self) -> None: ...


async def append_surely(
    tape: Tape, batch: Sequence[Envelope], patience_seconds: float = APPEND_PATIENCE_SECONDS
) -> Stored | Refused:
    """Appends a batch and finds out what became of it, also when the answer is lost.

    Unknown is settled by reading the next position: my digest means stored, another's refused,
    nothing means that the same bytes are sent again. Raises Trouble when the tape cannot be
    reached for `patience_seconds`, and ChainBroken for one that has lost what the batch follows.
    """
    assert 1 <= len(batch) <= BATCH_MAX
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_seconds
    pause_seconds, looks = 0.05, 0
    while True:
        outcome = await tape.append(batch)
        if isinstance(outcome, Stored):
            return outcome
        try:
            there = await tape.read(batch[0].position - 1, 1)
            if isinstance(outcome, Refused) and not there:
                await _check_not_shorter(tape, batch[0].position - 1, looks := looks + 1)
        except Trouble as error:
            there = []
            outcome = Unknown(str(error))
        if there:
            if there[0].digest == batch[0].digest:
                return Stored(batch[-1].position)
            return Refused(f"position {there[0].position} holds another's record")
        if loop.time() > deadline:
            raise Trouble(
                f"run {tape.run}: an append at position {batch[0].position} is unsettled after "
                f"{patience_seconds:.0f} s ({outcome.why}); is the NATS server well?"
            )
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, 2.0)


async def read_surely(tape: Tape, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
    """At least one record after a position at which one is known to stand; at most `limit`.

    Looked at a few times: a leader that was deposed a moment ago may still answer, from its past.
    Raises ChainBroken for a tape that has lost it.
    """
    for look in range(LOOKS_MAX):
        if look:
            await asyncio.sleep(SHORTER_SECONDS)
        records = await tape.read(after, limit)
        if records:
            return records
    raise shorter(f"the tape of run {tape.run}", after + 1, await tape.last())


async def _check_not_shorter(tape: Tape, position: int, looks: int) -> None:
    """A batch was refused, yet nobody's record stands there: does the tape reach so far?

    Looked at a few times: a leader that was deposed a moment ago may still answer.
    """
    found = await tape.last()
    if found < position and looks >= LOOKS_MAX:
        raise shorter(f"the tape of run {tape.run}", position, found)
