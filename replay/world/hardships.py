"""Hardships as they strike a world, and how each is taken back. Nothing here is drawn twice.

A hardship is a pair of acts: one when it strikes, one when it ends. `heal` ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from decodiloco.store.tensors import Encoded
from replay.world import poison
from replay.world.branches import POINTS
from replay.world.calls import KIND as CALL
from replay.world.model import Arrays
from replay.world.network import SERVICES, WAYS, Service
from replay.world.places import WorldInbox
from replay.world.plan import KINDS, Hardship, draw_plan
from replay.world.process import Killed, Process
from replay.world.recording import torn_and_taken_up
from replay.world.targets import Targets, role_of

if TYPE_CHECKING:
    from replay.world.learner import LearnerProcess
    from replay.world.world import World

__all__ = ["KINDS", "Hardship", "Hardships", "draw_plan"]

Undo = Callable[[], None]

SHARE = 0.3  # of calls, letters or blobs that a hardship strikes while it lasts


@dataclass
class Armed:
    """A death that waits at a point (any, when empty), until so many more have passed there.

    `stops`: it is no death, and who was stopped goes on after so many seconds.
    """

    name: str
    role: str
    point: str
    left: int
    seconds: float
    stops: bool


class Hardships:
    """All hardships of one world, and what they have changed just now."""

    def __init__(self, world: World, plan: tuple[Hardship, ...]) -> None:
        self.plan = plan
        self.clock_seconds: dict[str, float] = {}
        self._world = world
        self._targets = Targets(world)
        self._undo: dict[str, Undo] = {}
        self._armed: list[Armed] = []
        self._poisoned: dict[str, str] = {}
        self._doubling = 0
        self._is_over = False

    def begin(self) -> None:
        """Sets the moments of all."""
        for hardship in self.plan:
            self._world.heap.later(hardship.at_seconds, partial(self._strike, hardship))

    def heal(self) -> None:
        """Ends all that last, and starts all machines that are down."""
        self._is_over = True
        for name in sorted(self._undo):
            self._undo.pop(name)()
        self._armed.clear()
        world = self._world
        for name in world.case.syncers:
            world.start_syncer(name)
        for name in world.case.mergers:
            world.start_merger(name)
        for learner in world.case.learners:
            world.start_learner(learner)

    # What processes and places ask.

    def passes(self, process: Process, point: str) -> None:
        """A process passes a point: it is killed or stopped if a hardship waits there for it."""
        for armed in self._armed:
            if armed.role != role_of(process) or armed.point not in ("", point):
                continue
            if armed.left > 0:
                armed.left -= 1
                continue
            self._armed.remove(armed)
            if armed.stops:
                self._lasts(armed.name, self._pause(process), armed.seconds)
                return
            self._world.hit(f"a {armed.role} is killed: {point}")
            process.kill()
            self._world.restart(process, armed.seconds)
            raise Killed(point)

    def put(self, inbox: WorldInbox, speaker: str, kind: str, payload: bytes) -> int:
        """A letter comes in, or comes in twice."""
        sequence = inbox.put(speaker, kind, payload)
        random = self._world.random
        if self._doubling and random.random() < SHARE:
            self._world.hit("a letter comes twice")
            late_seconds = random.choice((0.0, 3.0, 30.0))
            self._world.heap.later(late_seconds, lambda: _put_again(inbox, speaker, kind, payload))
        return sequence

    def spoilt(self, learner: LearnerProcess, delta: Arrays) -> Arrays:
        """A learner's delta, as a hardship leaves it."""
        how = self._poisoned.get(learner.case.id, "")
        return poison.spoilt(how, delta) if how else delta

    def forged(self, learner: LearnerProcess, blob: Encoded) -> Encoded:
        """A learner's blob, as a hardship leaves it."""
        how = self._poisoned.get(learner.case.id, "")
        return poison.forged(how, blob) if how else blob

    # Striking.

    def _strike(self, hardship: Hardship) -> None:
        if self._is_over:
            return
        self._world.hit(f"hardship {hardship.kind}")
        self._world.voices.announce(hardship.kind, hardship.name)
        undo = self._acts()[hardship.kind](hardship, Random(hardship.draw))
        self._lasts(hardship.name, undo, hardship.seconds)

    def _lasts(self, name: str, undo: Undo | None, seconds: float) -> None:
        """What has struck is taken back after so long, if it can be."""
        if undo is not None:
            self._undo[name] = undo
            self._world.heap.later(seconds, lambda: self._take_back(name))

    def _take_back(self, name: str) -> None:
        undo = self._undo.pop(name, None)
        if undo is not None:
            undo()

    def _acts(self) -> Mapping[str, Callable[[Hardship, Random], Undo | None]]:
        return {
            "kill-learner": lambda hardship, random: self._arm("learner", hardship, random),
            "kill-syncer": lambda hardship, random: self._arm("syncer", hardship, random),
            "kill-merger": lambda hardship, random: self._arm("merger", hardship, random),
            "kill-all": self._kill_all,
            "pause-learner": lambda _, random: self._pause(self._targets.learner(random)),
            "pause-syncer": lambda _, random: self._pause(self._targets.syncer(random)),
            "pause-merger": lambda hardship, random: self._arm("merger", hardship, random, True),
            "old-syncer": lambda _, random: self._pause(self._targets.leader()),
            "slow-learner": lambda _, random: self._slow(self._targets.learner(random), random),
            "slow-syncer": lambda _, random: self._slow(self._targets.syncer(random), random),
            "slow-merger": lambda _, random: self._slow(self._targets.merger(random), random),
            "cut-one-way": self._cut_one_way,
            "cut-off": lambda _, random: self._cut_off(random.choice(self._targets.machines())),
            "swizzle": self._swizzle,
            "nats-down": lambda hardship, random: self._down("nats"),
            "store-down": lambda hardship, random: self._down("store"),
            "append-unknown": lambda hardship, random: self._lossy("append"),
            "say-unknown": lambda hardship, random: self._lossy("say"),
            "call-unknown": lambda hardship, random: self._lossy(CALL),
            "store-unknown": lambda hardship, random: self._lossy("put", "transfer"),
            "double-letters": self._double_letters,
            "late-messages": self._late_messages,
            "store-errors": self._store_errors,
            "store-slow": self._store_slow,
            "store-corrupt": lambda hardship, random: self._spoil("corrupt"),
            "store-missing": lambda hardship, random: self._spoil("missing"),
            "torn-file": self._tear,
            "clock-jump": self._clock_jump,
            "poison-delta": self._poison,
            "broken-model": self._break_model,
            "malformed": lambda _, random: self._say(poison.malformed, random),
            "lying-words": lambda _, random: self._say(poison.lies, random),
            "churn": self._churn,
            "doubled-learner": self._double_learner,
            "site-loss": self._site_loss,
        }

    def _arm(
        self, role: str, hardship: Hardship, random: Random, stops: bool = False
    ) -> Undo | None:
        """Whoever of this role passes a point next, or after a while, is killed or stopped there.

        Half of them wait for one certain point: some are passed a thousand times more often.
        """
        point = random.choice(("", "", *POINTS[role])) if random.random() < 0.5 else ""
        left = 0 if point else random.randrange(40)
        armed = Armed(hardship.name, role, point, left, hardship.seconds, stops)
        self._armed.append(armed)
        return None

    def _kill_all(self, hardship: Hardship, random: Random) -> Undo | None:
        for process in self._targets.running():
            process.kill()
            self._world.restart(process, hardship.seconds * random.uniform(1.0, 2.0))
        return None

    def _site_loss(self, hardship: Hardship, random: Random) -> Undo | None:
        learners = self._targets.alive()
        for process in learners[: (len(learners) + 1) // 2]:
            process.kill()
            self._world.restart(process, hardship.seconds)
        return None

    def _pause(self, process: Process | None) -> Undo | None:
        if process is None or process.is_stopped:
            return None
        process.stop()
        return process.go_on

    def _slow(self, process: Process | None, random: Random) -> Undo | None:
        if process is None:
            return None
        process.slowness *= random.choice((2.0, 5.0))

        def undo() -> None:
            process.slowness = 1.0

        return undo

    def _cut_one_way(self, hardship: Hardship, random: Random) -> Undo:
        machine = random.choice(self._targets.machines())
        service, way = random.choice(SERVICES), random.choice(WAYS)
        network = self._world.network
        network.cut(machine, service, way)
        return lambda: network.join(machine, service, way)

    def _cut_off(self, machine: str) -> Undo:
        network = self._world.network
        for service in SERVICES:
            for way in WAYS:
                network.cut(machine, service, way)

        def undo() -> None:
            for service in SERVICES:
                for way in WAYS:
                    network.join(machine, service, way)

        return undo

    def _swizzle(self, hardship: Hardship, random: Random) -> Undo:
        """Each of some machines is cut at a moment of its own, and joined at another."""
        machines = self._targets.machines()
        chosen = random.sample(machines, max(1, len(machines) // 2))
        undo: dict[str, Undo] = {}

        def cut(machine: str) -> None:
            if not self._is_over:
                undo[machine] = self._cut_off(machine)

        def join(machine: str) -> None:
            if machine in undo:
                undo.pop(machine)()

        for machine in chosen:
            begin, end = sorted(random.uniform(0.0, hardship.seconds) for _ in range(2))
            self._world.heap.later(begin, partial(cut, machine))
            self._world.heap.later(end, partial(join, machine))

        def undo_all() -> None:
            for machine in chosen:
                join(machine)

        return undo_all

    def _down(self, service: Service) -> Undo:
        self._world.network.take_down(service)
        return lambda: self._world.network.bring_up(service)

    def _lossy(self, *kinds: str) -> Undo:
        shares = self._world.network.loss_shares
        for kind in kinds:
            shares[kind] = SHARE

        def undo() -> None:
            for kind in kinds:
                shares[kind] = 0.0

        return undo

    def _double_letters(self, hardship: Hardship, random: Random) -> Undo:
        self._doubling += 1

        def undo() -> None:
            self._doubling -= 1

        return undo

    def _late_messages(self, hardship: Hardship, random: Random) -> Undo:
        network = self._world.network
        network.late_seconds_max = random.choice((0.5, 3.0))

        def undo() -> None:
            network.late_seconds_max = 0.0

        return undo

    def _store_errors(self, hardship: Hardship, random: Random) -> Undo:
        store = self._world.store
        store.error_share = random.choice((0.02, 0.2, 0.9))

        def undo() -> None:
            store.error_share = 0.0

        return undo

    def _store_slow(self, hardship: Hardship, random: Random) -> Undo:
        store = self._world.store
        store.slowness = random.choice((3.0, 15.0))

        def undo() -> None:
            store.slowness = 1.0

        return undo

    def _spoil(self, how: str) -> Undo:
        shares = self._world.store.spoil_shares
        shares[how] = SHARE

        def undo() -> None:
            shares.pop(how, None)

        return undo

    def _tear(self, hardship: Hardship, random: Random) -> Undo | None:
        world = self._world
        wrong = torn_and_taken_up(world.run, world.tape.records, random)
        world.invariants.recording.hold(not wrong, wrong, len(world.tape.records))
        return None

    def _clock_jump(self, hardship: Hardship, random: Random) -> Undo:
        machine = random.choice(self._world.case.syncers)
        self.clock_seconds[machine] = random.choice((-1e6, -3600.0, 0.5, 7200.0, 1e6))

        def undo() -> None:
            self.clock_seconds.pop(machine, None)

        return undo

    def _poison(self, hardship: Hardship, random: Random) -> Undo:
        learner = random.choice(self._world.case.learners).id
        self._poisoned[learner] = random.choice(poison.WAYS)

        def undo() -> None:
            self._poisoned.pop(learner, None)

        return undo

    def _break_model(self, hardship: Hardship, random: Random) -> Undo | None:
        learner = self._targets.learner(random)
        if learner is not None:
            learner.model.break_down()
        return None

    def _say(self, messages: poison.Messages, random: Random) -> Undo | None:
        inbox = self._targets.inbox(random)
        for speaker, kind, payload in messages(random, self._world):
            inbox.put(speaker, kind, payload)
        return None

    def _churn(self, hardship: Hardship, random: Random) -> Undo | None:
        for learner in self._targets.alive():
            if random.random() < 0.4:
                learner.run(learner.leave)
        return None

    def _double_learner(self, hardship: Hardship, random: Random) -> Undo | None:
        case = random.choice(self._world.case.learners)
        self._world.start_learner(case, doubled=True)
        return None


def _put_again(inbox: WorldInbox, speaker: str, kind: str, payload: bytes) -> None:
    inbox.put(speaker, kind, payload)
