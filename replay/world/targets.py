"""Whom a hardship may strike: the processes, machines and inboxes of one world as they are now."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from replay.world.merger import MergerProcess
from replay.world.places import WorldInbox
from replay.world.process import Process
from replay.world.syncer import SyncerProcess

if TYPE_CHECKING:
    from replay.world.learner import LearnerProcess
    from replay.world.world import World


class Targets:
    """All that is there to be struck."""

    def __init__(self, world: World) -> None:
        self._world = world

    def running(self) -> list[Process]:
        """All processes that live."""
        lives: list[Process] = [one for one in self._world.syncers.values() if not one.is_dead]
        mergers = [one for one in self._world.mergers.values() if not one.is_dead]
        return [*lives, *self.alive(), *mergers]

    def alive(self) -> list[LearnerProcess]:
        """Every life of a learner that goes on, in the order of their names."""
        world = self._world
        return [
            life
            for name in sorted(world.learners)
            for life in world.learners[name]
            if not life.is_dead
        ]

    def machines(self) -> list[str]:
        """All machines, whether anything runs there or not."""
        case = self._world.case
        return [*case.syncers, *(learner.id for learner in case.learners), *case.mergers]

    def learner(self, random: Random) -> LearnerProcess | None:
        """One of the learners that live."""
        alive = self.alive()
        return random.choice(alive) if alive else None

    def syncer(self, random: Random) -> SyncerProcess | None:
        """One of the syncers that live."""
        alive = [one for one in self._world.syncers.values() if not one.is_dead]
        return random.choice(alive) if alive else None

    def merger(self, random: Random) -> MergerProcess | None:
        """One of the mergers that live."""
        alive = [one for one in self._world.mergers.values() if not one.is_dead]
        return random.choice(alive) if alive else None

    def leader(self) -> SyncerProcess | None:
        """The syncer that leads, or one that has not heard yet that it does no more."""
        leading = [
            one for one in self._world.syncers.values() if not one.is_dead and one.reign is not None
        ]
        return leading[0] if leading else None

    def inbox(self, random: Random) -> WorldInbox:
        """One of the inboxes."""
        return self._world.inboxes[random.choice(sorted(self._world.inboxes))]


def role_of(process: Process) -> str:
    """What a process is to the run."""
    if isinstance(process, MergerProcess):
        return "merger"
    return "syncer" if isinstance(process, SyncerProcess) else "learner"
