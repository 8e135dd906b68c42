"""`decodiloco doctor`: what a run needs, tried from this machine, a line a check.

Each check ends in ok or FAILED with the next thing to do. It writes to no run: what it tries
on the server is a scratch run of its own that it removes again, and in the store one blob.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from decodiloco.config import Config, Run
from decodiloco.doctor_checks import installation, measure_server, measure_store
from decodiloco.needs import Needs, needs_of
from decodiloco.time_orders import advice
from streams.errors import Failure


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried, how it went, and what to do when it failed."""

    name: str
    ok: bool
    told: str


@dataclass(slots=True)
class Examination:
    """All checks in order, the times measured, and what they mean for the run."""

    checks: list[Check] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    needs: Needs | None = None
    exit_code: int = 0

    def passed(self, name: str, told: str) -> None:
        self.checks.append(Check(name, True, told))

    def failed(self, name: str, failure: Failure) -> None:
        self.checks.append(Check(name, False, str(failure)))
        self.exit_code = self.exit_code or failure.exit_code


def examine(config: Config) -> Examination:
    """Runs every check; one that fails does not keep the others from being tried."""
    found = Examination()
    _try(found, "times", lambda: (_told_times(config.run), {}))
    _try(found, "installation", lambda: ("; ".join(installation()), {}))
    _try(found, "server", lambda: asyncio.run(measure_server(config)))
    _try(found, "store", lambda: measure_store(config))
    if {"upload_seconds", "download_seconds", "tape_seconds"} <= found.times.keys():
        # A word crosses the link on its way to the syncer, a fact on its way back.
        said_seconds = found.times["tape_seconds"] + found.times.get("link_seconds", 0.0) / 2
        found.needs = needs_of(
            config.run,
            found.times["upload_seconds"] + said_seconds,
            found.times["download_seconds"] + said_seconds,
        )
    return found


def _told_times(run: Run) -> str:
    """The waits that a run may set, in their order, and what wastes work all the same."""
    times = run.times
    told = (
        f"heartbeat {times.heartbeat_seconds:g} s, takeover {times.takeover_seconds:g} s, "
        f"lost {times.lost_seconds:g} s, orphan {times.orphan_seconds_max:g} s: in order"
    )
    return "; but ".join((told, *advice(run)))


def tell(found: Examination, as_json: bool) -> int:
    """Prints an examination; the exit code of the first check that failed, else 0."""
    if as_json:
        print(json.dumps(_plain(found)))
        return found.exit_code
    for check in found.checks:
        print(f"{'ok    ' if check.ok else 'FAILED'}  {check.name}: {check.told}")
    for name, seconds in found.times.items():
        print(f"        {name.replace('_', ' ')}: {1000 * seconds:.1f} ms")
    if found.needs is not None:
        print("\n".join(f"        {line}" for line in found.needs.lines()))
    return found.exit_code


def _try(found: Examination, name: str, check: Callable[[], tuple[str, dict[str, float]]]) -> None:
    began_seconds = time.monotonic()
    try:
        told, times = check()
    except Failure as failure:
        found.failed(name, failure)
        return
    found.times.update(times)
    found.passed(name, f"{told} ({time.monotonic() - began_seconds:.1f} s)")


def _plain(found: Examination) -> dict[str, Any]:
    return {
        "ok": found.exit_code == 0,
        "checks": [
            {"name": check.name, "ok": check.ok, "told": check.told} for check in found.checks
        ],
        **found.times,
        **(found.needs.plain() if found.needs else {}),
    }
