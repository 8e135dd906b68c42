"""Learners that come and go: when each is there, and that nobody is started before he has left."""

from __future__ import annotations

import asyncio
import math
from itertools import islice

from decodiloco.local.availability import Availability
from decodiloco.local.plan import Role, spot_roles
from decodiloco.local.spot import come_and_go

LIMIT_SECONDS = 20.0
SPAN_SECONDS = 0.05


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


class Machines:
    """Roles that run until they are told to leave; told, one leaves only when it is let."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.let = asyncio.Event()
        self.let.set()
        self._news = asyncio.Condition()
        self._gone: dict[str, asyncio.Event] = {}

    async def come(self, role: Role) -> None:
        self._gone[role.id] = asyncio.Event()
        await self._note("comes", role)
        await self._gone[role.id].wait()

    async def go(self, role: Role) -> None:
        await self._note("goes", role)
        await self.let.wait()
        self._gone[role.id].set()

    async def heard(self, seat: str, count: int) -> list[str]:
        """What this one was told first, as soon as that is so much."""
        async with asyncio.timeout(LIMIT_SECONDS), self._news:
            await self._news.wait_for(lambda: len(self.of(seat)) >= count)
        return self.of(seat)[:count]

    def of(self, seat: str) -> list[str]:
        return [what for what, who in self.told if who == seat]

    async def _note(self, what: str, role: Role) -> None:
        async with self._news:
            self.told.append((what, role.id))
            self._news.notify_all()


def following(machines: Machines, *spans: tuple[float, float]) -> asyncio.Task[None]:
    there = Availability(tuple((length * SPAN_SECONDS, count) for length, count in spans))
    roles, now = spot_roles("runs/x", there.most), asyncio.get_running_loop().time()
    return asyncio.create_task(come_and_go(there, roles, machines.come, machines.go, now))


def test_roles_come_and_go_by_the_trace() -> None:
    async def told() -> None:
        machines = Machines()
        task = following(machines, (1, 0), (1, 2), (1, 1))
        for seat in ("spot-1", "spot-2"):
            assert await machines.heard(seat, 3) == ["comes", "goes", "comes"]
        assert machines.told.index(("goes", "spot-2")) < machines.told.index(("goes", "spot-1"))
        task.cancel()

    asyncio.run(told())


def test_nobody_comes_back_before_he_has_left_and_a_stay_missed_is_left_out() -> None:
    async def told() -> None:
        machines = Machines()
        machines.let.clear()
        task = following(machines, (1, 1), (1, 0))
        await machines.heard("spot-1", 2)
        clock = asyncio.get_running_loop().time
        late = clock() + 5 * SPAN_SECONDS  # more than two stays later
        while clock() < late:
            await asyncio.sleep(SPAN_SECONDS)
            assert machines.of("spot-1") == ["comes", "goes"]
        machines.let.set()
        assert await machines.heard("spot-1", 4) == ["comes", "goes"] * 2
        task.cancel()

    asyncio.run(told())


def test_who_is_always_there_is_never_told_to_go() -> None:
    async def told() -> None:
        machines = Machines()
        task = following(machines, (1, 1), (1, 2))
        await machines.heard("spot-2", 4)
        assert machines.of("spot-1") == ["comes"]
        task.cancel()

    asyncio.run(told())


def test_spot_learners_have_ids_of_their_own() -> None:
    assert [role.name for role in spot_roles("runs/x", 2)] == ["learner-spot-1", "learner-spot-2"]
