"""Calls between the processes of a world: a question to a name, by the server, and its answer.

Knows bytes; must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Callable

from replay.world.heap import Heap
from replay.world.network import Network
from replay.world.process import Process
from streams.calls import CALL_BYTES_MAX, Answerer
from streams.times import CALL_SECONDS

KIND = "call"


class WorldCalls:
    """Whoever answers is known by name; both ends must reach the server, and hear from it."""

    def __init__(self, network: Network, heap: Heap, hit: Callable[[str], None]) -> None:
        self._network, self._heap, self._hit = network, heap, hit
        self._answerers: dict[str, tuple[Process, Answerer]] = {}

    def answer(self, process: Process, name: str, answerer: Answerer) -> None:
        """From now on this process answers what is asked of this name."""
        self._answerers[name] = process, answerer

    def call(
        self,
        process: Process,
        name: str,
        question: bytes,
        answered: Callable[[bytes | None], None],
        late: Callable[[bytes], None],
    ) -> None:
        """Asks; the answer, or None when nobody bears the name, or none came in time.

        `late` is told an answer that came when nobody waited for it any more.
        """
        assert len(question) <= CALL_BYTES_MAX
        network, loss = self._network, self._network.loss(KIND)
        is_settled = False

        def settle(payload: bytes | None) -> None:
            nonlocal is_settled
            if not is_settled:
                is_settled = True
                answered(payload)
            elif payload is not None:
                late(payload)

        def give_back(payload: bytes | None) -> None:
            if loss == "answer" or not network.is_open(process.machine, "nats", "from"):
                self._hit(f"the answer to a call is lost: {KIND}")
                return
            process.later(network.delay(), lambda: settle(payload))

        def arrive() -> None:
            if not network.is_open(process.machine, "nats", "to"):
                return
            there, answerer = self._answerers.get(name, (None, _nobody))
            if there is None or there.is_dead:
                give_back(None)  # the server knows that nobody listens
            elif network.is_open(there.machine, "nats", "from"):
                self._heap.later(network.delay(), lambda: there.run(lambda: reply(there, answerer)))

        def reply(there: Process, answerer: Answerer) -> None:
            payload = answerer(question)
            if network.is_open(there.machine, "nats", "to"):
                self._heap.later(network.delay(), lambda: give_back(payload))

        if loss != "request":
            late_seconds = CALL_SECONDS * (1 + network.random.random()) if loss == "late" else 0.0
            self._heap.later(network.delay() + late_seconds, arrive)
        process.later(CALL_SECONDS, lambda: settle(None))


def _nobody(question: bytes) -> bytes:
    raise AssertionError("nobody answers")
