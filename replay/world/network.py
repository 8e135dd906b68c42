"""Links between machines and services: delays, losses and cuts. Knows no message's meaning.

A service is `nats` (tape, inboxes, pulse) or `store`. Each machine has two links to each, one a
direction, and either may be cut. A call whose request or answer is lost ends at its time-out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Generic, Literal, TypeVar

from decodiloco.errors import StoreUnreachable
from replay.errors import InvariantBroken
from replay.world.heap import Happen, Heap
from replay.world.process import Process
from streams.errors import Failure, ServerUnreachable, Trouble
from streams.pulse import Beat

T = TypeVar("T")

Service = Literal["nats", "store"]
Way = Literal["to", "from"]
Loss = Literal["", "request", "answer", "late"]

DELAY_SECONDS = 0.01
SERVICES: tuple[Service, ...] = ("nats", "store")
WAYS: tuple[Way, ...] = ("to", "from")


class Network:
    """All links of a world, drawn from one seed."""

    def __init__(self, heap: Heap, random: Random, hit: Callable[[str], None]) -> None:
        self.random = random
        self.late_seconds_max = 0.0  # more delay for a share of all messages, so that they overtake
        self.healed: list[Happen] = []  # tried again whenever a link or a service comes back
        self.loss_shares: dict[str, float] = {}  # of calls of a kind, by the loss that they suffer
        self._heap = heap
        self._hit = hit
        self._cuts: Counter[tuple[str, Service, Way]] = Counter()
        self._down: Counter[Service] = Counter()

    def delay(self) -> float:
        """How long a message takes now."""
        seconds = DELAY_SECONDS * (0.5 + self.random.random())
        if self.late_seconds_max and self.random.random() < 0.3:
            seconds += self.late_seconds_max * self.random.random()
        return seconds

    def is_open(self, machine: str, service: Service, way: Way) -> bool:
        """Whether messages pass."""
        return not self._down[service] and not self._cuts[machine, service, way]

    def cut(self, machine: str, service: Service, way: Way) -> None:
        """Cuts one direction of one link; several cuts add up."""
        self._cuts[machine, service, way] += 1

    def join(self, machine: str, service: Service, way: Way) -> None:
        """Takes one cut back."""
        self._cuts[machine, service, way] -= 1
        assert self._cuts[machine, service, way] >= 0
        self._ring()

    def take_down(self, service: Service) -> None:
        """The service answers nobody; what it holds is kept."""
        self._down[service] += 1

    def bring_up(self, service: Service) -> None:
        """The service is back."""
        self._down[service] -= 1
        assert self._down[service] >= 0
        self._ring()

    def loss(self, kind: str) -> Loss:
        """What a call of this kind loses, drawn; mostly nothing."""
        share = self.loss_shares.get(kind, 0.0)
        if not share or self.random.random() >= share:
            return ""
        return self.random.choice(("request", "answer", "late"))

    def call(
        self,
        process: Process,
        service: Service,
        kind: str,
        do: Callable[[], T],
        answered: Callable[[T | Failure], None],
        timeout_seconds: float = 2.0,
    ) -> None:
        """Asks a service for something; the answer, or Trouble when none comes in time.

        What the service itself raises is an answer too.
        """
        loss = self.loss(kind)
        settled = False

        def settle(result: T | Failure) -> None:
            nonlocal settled
            if not settled:
                settled = True
                answered(result)

        def arrive() -> None:
            if not self.is_open(process.machine, service, "to"):
                return
            result: T | Failure
            try:
                result = do()
            except InvariantBroken:
                raise
            except Failure as failure:
                result = failure
            if loss == "answer" or not self.is_open(process.machine, service, "from"):
                self._hit(f"the answer to a call is lost: {kind}")
                return
            process.later(self.delay(), lambda: settle(result))

        if loss != "request":
            late = timeout_seconds * (1 + self.random.random()) if loss == "late" else 0.0
            self._heap.later(self.delay() + late, arrive)
        process.later(timeout_seconds, lambda: None if settled else settle(_trouble(service, kind)))

    def _ring(self) -> None:
        for happen in list(self.healed):
            happen()


def _trouble(service: Service, kind: str) -> Trouble:
    if service == "store":
        return StoreUnreachable(f"{kind}: the store does not answer")
    return ServerUnreachable(f"{kind}: no server answers")


@dataclass
class Shelf(Generic[T]):
    """A list that only grows, and whom to tell when it has grown."""

    items: list[T] = field(default_factory=list)
    rings: list[Happen] = field(default_factory=list)

    def grown(self) -> None:
        """Tells everybody who follows."""
        for ring in list(self.rings):
            ring()


class Delivery(Generic[T]):
    """What lies on a shelf at a service, handed to one process in order and without a gap.

    `wanted` picks what this follower is given; what it is not given costs it nothing.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        shelf: Shelf[T],
        after: int,
        take: Callable[[T], None],
        wanted: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._network, self._process, self._shelf = network, process, shelf
        self._given = after
        self._take, self._wanted = take, wanted
        self._is_busy = self._is_over = False
        network.healed.append(self.ring)
        shelf.rings.append(self.ring)
        self.ring()

    def ring(self) -> None:
        """There may be more to hand over."""
        if self._process.is_dead:
            self.end()
        if self._is_busy or self._is_over:
            return
        items = self._shelf.items
        while self._given < len(items) and not self._wanted(items[self._given]):
            self._given += 1
        if self._given >= len(items):
            return
        if self._network.is_open(self._process.machine, "nats", "from"):
            self._is_busy = True
            self._process.later(self._network.delay(), self._hand_over)

    def end(self) -> None:
        """Nothing more is handed over."""
        if not self._is_over:
            self._is_over = True
            self._network.healed.remove(self.ring)
            self._shelf.rings.remove(self.ring)

    def _hand_over(self) -> None:
        items = self._shelf.items
        for item in items[self._given : len(items)]:
            if self._is_over:
                return
            self._given += 1
            if self._wanted(item):
                self._take(item)
        self._is_busy = False
        self.ring()


class WorldPulse:
    """Heartbeats: whoever can be reached hears them, and nobody waits for one."""

    def __init__(self, network: Network, heap: Heap) -> None:
        self._network, self._heap = network, heap
        self._listeners: dict[str, list[tuple[Process, Callable[[Beat], None]]]] = {}

    def listen(self, process: Process, take: Callable[[Beat], None], *roles: str) -> None:
        """This process hears the beats of these roles from now on."""
        for role in roles:
            there = [one for one in self._listeners.get(role, []) if not one[0].is_dead]
            self._listeners[role] = [*there, (process, take)]

    def beat(self, process: Process, beat: Beat) -> None:
        """One beat, heard a moment later wherever the links are open."""
        if self._network.is_open(process.machine, "nats", "to"):
            self._heap.later(self._network.delay(), lambda: self._spread(beat))

    def _spread(self, beat: Beat) -> None:
        for process, take in self._listeners.get(beat.role, ()):
            if self._network.is_open(process.machine, "nats", "from"):
                process.run(partial(take, beat))
