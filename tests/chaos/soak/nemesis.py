"""Carries out a plan: says each fault into the run's inbox first, then strikes, then heals.

What it said and did stands in its own journal, with the moments, whatever becomes of the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from streams.errors import Trouble
from streams.events import HardshipInjected
from tests.chaos.soak.arena import Arena
from tests.chaos.soak.journal import Journal, JournalledInbox
from tests.chaos.soak.plan import Strike
from tests.chaos.soak.settings import REGION
from tests.chaos.soak.strikes import Strikes

SPEAKER = "nemesis"
SAY_SECONDS_MAX = 90.0
BREATH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was carried out, by the monotonic clock."""

    strike: Strike
    began_seconds: float
    ended_seconds: float


class Nemesis:
    """What a soak does to an arena. `struck` and `skipped` are its account."""

    def __init__(self, arena: Arena, seed: int) -> None:
        self.struck: list[Struck] = []
        self.skipped: dict[str, str] = {}
        self._seed = seed
        self._said = 0
        journals = arena.folder / "journals"
        self._journal = Journal(journals / "nemesis.jsonl")
        inbox = arena.connection.inbox(arena.config.run.name, REGION)
        self._inbox = JournalledInbox(inbox, Journal(journals / "inbox-nemesis.jsonl"))
        self._strikes = Strikes(arena)

    async def run(
        self, plan: Sequence[Sequence[Strike]], period_seconds: float, seconds: float
    ) -> None:
        """One mix a period, until so long has passed; what has begun is finished."""
        ends_at = time.monotonic() + seconds
        for mix in plan:
            began = time.monotonic()
            if began >= ends_at:
                break
            await self._period(mix)
            rest = period_seconds - (time.monotonic() - began)
            await asyncio.sleep(max(BREATH_SECONDS, rest))

    async def _period(self, mix: Sequence[Strike]) -> None:
        possible = []
        for strike in mix:
            why_not = self._strikes.why_not(strike.kind)
            if why_not:
                self.skipped[strike.kind] = why_not
                continue
            await self._say(strike)
            possible.append(strike)
        async with asyncio.TaskGroup() as group:
            for strike in possible:
                group.create_task(self._carry_out(strike), name=strike.kind)

    async def _say(self, strike: Strike) -> None:
        """Into the inbox, acknowledged, before it strikes."""
        self._said += 1
        word = HardshipInjected(
            speaker=SPEAKER,
            life=1 + self._seed,
            said=self._said,
            hardship=strike.kind,
            target=strike.target,
            seed=strike.seed,
        )
        deadline = time.monotonic() + SAY_SECONDS_MAX
        while True:
            try:
                await self._inbox.say(word)
                return
            except Trouble:
                if time.monotonic() > deadline:
                    raise

    async def _carry_out(self, strike: Strike) -> None:
        await asyncio.sleep(strike.offset_seconds)
        began = time.monotonic()
        self._journal.note(
            at=began, strikes=strike.kind, target=strike.target, seconds=strike.seconds
        )
        await self._strikes.carry_out(strike)
        ended = time.monotonic()
        self._journal.note(at=ended, over=strike.kind, target=strike.target)
        self.struck.append(Struck(strike, began, ended))
