"""Learners that come and go: when each is there, and that nobody is started before he has left."""

from __future__ import annotations

import asyncio
import math
import selectors
from contextlib import suppress
from itertools import islice

from decodiloco.local.availability import Availability
from decodiloco.local.plan import Role, spot_roles
from decodiloco.local.spot import come_and_go


def stays(*spans: tuple[float, float], seat: int) -> list[tuple[float, float]]:
    return list(islice(Availability(spans).stays(seat), 3))


def test_of_several_those_that_came_last_leave_first() -> None:
    spans = ((10.0, 0.0), (5.0, 2.0), (5.0, 1.0))
    assert stays(*spans, seat=0) == [(10.0, 20.0), (30.0, 40.0), (50.0, 60.0)]
    assert stays(*spans, seat=1) == [(10.0, 15.0), (30.0, 35.0), (50.0, 55.0)]
    assert stays(*spans, seat=2) == []


def test_a_stay_goes_on_in_the_repetition_of_the_trace() -> None:
    assert stays((4.0, 1.0), (6.0, 0.0), (2.0, 1.0), seat=0) == [
        (0.0, 4.0), (10.0, 16.0), (22.0, 28.0),
    ]  # fmt: skip


def test_whoever_is_in_every_span_stays_for_ever() -> None:
    assert stays((4.0, 1.0), (6.0, 3.0), seat=0) == [(0.0, math.inf)]


def test_parts_of_a_learner_are_rounded() -> None:
    assert Availability(((1.0, 0.4), (1.0, 2.6))).most == 3
    assert stays((1.0, 0.4), (1.0, 0.6), seat=0)[0] == (1.0, 2.0)


class HeldClock(selectors.SelectSelector):
    """Whoever would wait for a moment finds it come: time passes only where nobody can act."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again"
        self.now += timeout
        return super().select(0)


class Machines:
    """Roles that run until they are told to leave; whoever is told takes his time."""

    def __init__(self, *leave_seconds: float) -> None:
        self.told: list[tuple[float, str, str]] = []
        self._leave_seconds = list(leave_seconds)
        self._gone: dict[str, asyncio.Event] = {}

    async def come(self, role: Role) -> None:
        assert role.id not in self._gone, "it has not left yet"
        gone = self._gone[role.id] = asyncio.Event()
        self._note("comes", role)
        await gone.wait()

    async def go(self, role: Role) -> None:
        self._note("goes", role)
        await asyncio.sleep(self._leave_seconds.pop(0) if self._leave_seconds else 0.0)
        self._gone.pop(role.id).set()

    def _note(self, what: str, role: Role) -> None:
        self.told.append((round(asyncio.get_running_loop().time(), 3), what, role.id))


def followed(
    machines: Machines, seconds: float, *spans: tuple[float, float]
) -> list[tuple[float, str, str]]:
    """What happens in so many seconds, and when; of one moment by id."""
    there, clock = Availability(spans), HeldClock()
    roles = spot_roles("runs/x", there.most)

    def held() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(clock)
        loop.time = lambda: clock.now  # type: ignore[method-assign]
        return loop

    async def follow() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await come_and_go(there, roles, machines.come, machines.go, 0.0)

    with asyncio.Runner(loop_factory=held) as runner:
        runner.run(follow())
    return sorted(machines.told, key=lambda told: (told[0], told[2]))


def test_roles_come_and_go_by_the_trace() -> None:
    assert followed(Machines(), 45.0, (10.0, 0.0), (10.0, 2.0), (10.0, 1.0)) == [
        (10.0, "comes", "spot-1"),
        (10.0, "comes", "spot-2"),
        (20.0, "goes", "spot-2"),
        (30.0, "goes", "spot-1"),
        (40.0, "comes", "spot-1"),
        (40.0, "comes", "spot-2"),
    ]


def test_nobody_comes_back_before_he_has_left_and_then_for_what_is_left_of_the_stay() -> None:
    assert followed(Machines(12.0), 35.0, (10.0, 1.0), (10.0, 0.0)) == [
        (0.0, "comes", "spot-1"),
        (10.0, "goes", "spot-1"),
        (22.0, "comes", "spot-1"),
        (30.0, "goes", "spot-1"),
    ]


def test_a_stay_that_was_over_before_he_had_left_is_left_out() -> None:
    assert followed(Machines(25.0), 45.0, (10.0, 1.0), (10.0, 0.0)) == [
        (0.0, "comes", "spot-1"),
        (10.0, "goes", "spot-1"),
        (40.0, "comes", "spot-1"),
    ]


def test_who_is_always_there_is_never_told_to_go() -> None:
    told = followed(Machines(), 100.0, (10.0, 1.0), (10.0, 2.0))
    assert [what for _, what, who in told if who == "spot-1"] == ["comes"]


def test_spot_learners_have_ids_of_their_own() -> None:
    assert [role.name for role in spot_roles("runs/x", 2)] == ["learner-spot-1", "learner-spot-2"]
