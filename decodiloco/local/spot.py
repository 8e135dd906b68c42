"""Learners on machines that come and go, as a trace of spot machines or a schedule says.

Knows roles and moments. How a role is started and told to leave is handed in; it must not know
processes, nor the run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from decodiloco.local.availability import Availability
from decodiloco.local.plan import Role

Act = Callable[[Role], Coroutine[Any, Any, None]]


async def come_and_go(
    there: Availability, roles: Sequence[Role], come: Act, go: Act, begun_seconds: float
) -> None:
    """Lets each role come and go as the availability says; ends only if nobody ever has to go.

    One role a seat. `come` lasts as long as the role runs; `go` ends when the role has ended.
    Second 0 of the trace is the moment `begun_seconds` on the loop's clock.
    """
    assert len(roles) == there.most
    async with asyncio.TaskGroup() as group:
        for seat, role in enumerate(roles):
            group.create_task(_sit(role, there.stays(seat), come, go, begun_seconds))


async def _sit(
    role: Role, stays: Iterator[tuple[float, float]], come: Act, go: Act, begun_seconds: float
) -> None:
    """One seat. A stay that is over before the last one has ended is left out."""
    clock = asyncio.get_running_loop().time
    for begin, end in stays:
        await asyncio.sleep(begun_seconds + begin - clock())
        left_seconds = begun_seconds + end - clock()
        if left_seconds <= 0:
            continue
        async with asyncio.TaskGroup() as group:
            group.create_task(come(role))
            if not math.isinf(end):
                await asyncio.sleep(left_seconds)
                await go(role)
