"""Kills put into a running cluster on purpose: said first, seen on the tape, then carried out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial

from decodiloco.errors import Disagreement
from decodiloco.local.plan import Kill, syncer_ids, victim
from decodiloco.local.story import Story
from decodiloco.local.supervisor import Supervisor
from decodiloco.times import KILL_LOOK_SECONDS, KILL_TAPE_SECONDS_MAX, KILL_TARGET_SECONDS_MAX
from streams.errors import AskedWrongly, Trouble
from streams.events import HardshipInjected
from streams.inbox import Inbox

SPEAKER = "demo"


class Injector:
    """Strikes each planned kill once its step is reached. A kill without a target is an error."""

    def __init__(
        self, story: Story, supervisor: Supervisor, inbox: Inbox, note: Callable[[str], None]
    ) -> None:
        self._story = story
        self._supervisor = supervisor
        self._inbox = inbox
        self._note = note
        self._life = 1 + secrets.randbelow(2**53 - 1)

    async def run(self, kills: Sequence[Kill]) -> None:
        """Carries out the kills in order."""
        for said, kill in enumerate(kills, start=1):
            await _until(partial(self._reached, kill.step))
            await self._strike(kill, said)

    def _reached(self, step: int) -> bool:
        return self._story.step >= step

    async def _strike(self, kill: Kill, said: int) -> None:
        target = await self._find(kill)
        await self._inbox.say(
            HardshipInjected(
                speaker=SPEAKER,
                life=self._life,
                said=said,
                hardship="kill",
                target=target,
                seed=kill.step,
            )
        )
        await self._seen(said, target)
        pid = self._supervisor.kill(role_name(target))
        if pid is None:
            raise Disagreement(f"kill of {target}: it ended by itself just before it was struck")
        self._story.strike(target, asyncio.get_running_loop().time())
        self._note(f"kill -9 {target} (pid {pid}) at step {self._story.step}")

    async def _find(self, kill: Kill) -> str:
        def found() -> bool:
            return self._story.closed is not None or self._target(kill) is not None

        await _until(found, KILL_TARGET_SECONDS_MAX)
        target = self._target(kill)
        if target is None:
            raise AskedWrongly(
                f"kill {kill.target}@{kill.step}: there was no such process to kill at step "
                f"{self._story.step}"
            )
        return target

    def _target(self, kill: Kill) -> str | None:
        living = [id_ for id_ in self._story.living if self._runs(id_)]
        leader = self._story.leader
        return victim(kill, living, leader if leader and self._runs(leader) else None)

    def _runs(self, id_: str) -> bool:
        return self._supervisor.pid(role_name(id_)) is not None

    async def _seen(self, said: int, target: str) -> None:
        mine = (self._life, said)
        struck = self._story.struck
        if not await _until(
            lambda: mine in [(s.life, s.said) for s in struck], KILL_TAPE_SECONDS_MAX
        ):
            raise Trouble(f"kill of {target}: no syncer put it on the tape; look into logs/")


def role_name(id_: str) -> str:
    """The name under which the supervisor runs a syncer's or a learner's id."""
    return id_ if id_ in syncer_ids(16) else f"learner-{id_}"


async def _until(condition: Callable[[], bool], seconds_max: float | None = None) -> bool:
    """Waits for a condition; whether it held before the time was up."""
    try:
        async with asyncio.timeout(seconds_max):
            while True:
                if condition():
                    return True
                await asyncio.sleep(KILL_LOOK_SECONDS)
    except TimeoutError:
        return condition()
