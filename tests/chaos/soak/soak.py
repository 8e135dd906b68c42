"""One soak from its opening to its report: hurt, heal, drain, check, and compare with a twin.

Knows the order of things; how each is done stands in the files beside this one.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from replay.moments import END
from replay.place import find_place
from replay.record import Voice, record
from replay.state import state_of
from streams.errors import Failure
from streams.events import RunClosing
from tests.chaos.soak import checks, tape_notes
from tests.chaos.soak.arena import EVALUATOR, RUN, Arena, arena
from tests.chaos.soak.checks import Figure
from tests.chaos.soak.journal import Journal, JournalledInbox, entries
from tests.chaos.soak.nemesis import BREATH_SECONDS, Nemesis
from tests.chaos.soak.plan import KINDS, draw_plan
from tests.chaos.soak.processes import Exit
from tests.chaos.soak.report import Report
from tests.chaos.soak.settings import LEARNERS, PACE_SECONDS, REGION, ROGUE, SYNCERS
from tests.chaos.soak.stepping import gaps_of, lives_of, stepping
from tests.chaos.soak.twin import loss_beside, loss_of, twin

BEGIN_SECONDS_MAX = 120.0
AGAIN_SECONDS_MAX = 90.0
CLOSE_SECONDS_MAX = 120.0
LEAVE_SECONDS_MAX = 90.0
TWIN_SECONDS_MAX = 300.0
ALLOWED = ("LifeEnded", "start one there, or correct the address")
"""Last words of processes that ended as they should: an id taken over, no server at the start."""
ALLOWED_TO_THE_ROGUE = "Quarantined"

SHARE_MIN = 0.977
LOSS_SHARE_MAX = 0.02
LONG_MINUTES = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a soak is asked for; `kinds` narrows the faults down, none means all."""

    seed: int
    minutes: float
    folder: Path
    kinds: Sequence[str] | None = None


async def soak(asked: Asked) -> Report:
    """Runs it; whatever goes wrong is a figure of the report."""
    report = Report(asked.seed, asked.minutes, asked.folder)
    try:
        async with arena(asked.folder) as built:
            async with twin(asked.folder / "twin") as beside:
                await _live_through(asked, built, report)
                closed = built.watcher.closed
                tokens = 0 if closed is None else closed.tokens
                await beside.until(lambda: beside.tokens >= tokens, TWIN_SECONDS_MAX)
            await _check(built, report)
            built.failed = not report.ok
    except (Failure, BaseExceptionGroup, AssertionError, OSError) as error:
        (asked.folder / "failure.txt").write_text(traceback.format_exc(), encoding="utf-8")
        told = _first(error)
        report.figures.append(
            Figure("the soak itself", "broke off", "ends", False, f"{type(told).__name__}: {told}")
        )
    return report


async def _live_through(asked: Asked, built: Arena, report: Report) -> None:
    """The hurt, the healing, and how everybody came through it."""
    watcher = built.watcher
    begun = await watcher.until(lambda: watcher.step >= 4, BEGIN_SECONDS_MAX)
    assert begun, f"no four merges in {BEGIN_SECONDS_MAX:.0f} s: nothing was hurt yet"
    psutil.cpu_percent()
    nemesis = Nemesis(built, asked.seed)
    is_long = asked.minutes >= LONG_MINUTES
    wanted = [kind for kind in KINDS if not asked.kinds or kind.name in asked.kinds]
    plan = draw_plan(
        asked.seed,
        periods=1 + math.ceil(asked.minutes * 60 / BREATH_SECONDS),
        learners=LEARNERS,
        kinds=wanted,
        longest_seconds=60.0 if is_long else 15.0,
    )
    await nemesis.run(plan, 20.0 if is_long else 12.0, asked.minutes * 60)
    report.notes["box busy"] = f"{psutil.cpu_percent():.0f} % of {os.cpu_count()} cores"
    report.faults = Counter(struck.strike.kind for struck in nemesis.struck)
    report.skipped = nemesis.skipped
    await built.heal()
    report.figures += [await _all_step_again(built), *await _drain(built)]
    report.figures.append(_ended_by_themselves(built.processes.exits))
    _tell_steps(built, report)
    report.notes["longest time without a merge"] = _longest(watcher.merged_at)


async def _all_step_again(built: Arena) -> Figure:
    """Every learner makes a step that begins after the last heal."""
    healed = time.monotonic()
    paths = [built.folder / "steps" / f"{name}.jsonl" for name in LEARNERS]
    ends = {path: path.stat().st_size for path in paths}

    def stepping_again() -> int:
        fresh = [entries(path, ends[path]) for path in paths]
        return sum(any("life" not in each for each in one) for one in fresh)

    met = await built.watcher.until(lambda: stepping_again() == len(LEARNERS), AGAIN_SECONDS_MAX)
    return Figure(
        "from the last heal until all learners step",
        f"{time.monotonic() - healed:.1f} s",
        f"{AGAIN_SECONDS_MAX:.0f} s",
        met,
    )


async def _drain(built: Arena) -> list[Figure]:
    """Closes the run, and waits until everybody has ended well."""
    watcher, asked = built.watcher, time.monotonic()
    inbox = JournalledInbox(
        built.connection.inbox(RUN, REGION),
        Journal(built.folder / "journals" / "inbox-operator.jsonl"),
    )
    life = 1 + secrets.randbelow(2**53 - 1)
    await inbox.say(RunClosing(speaker="operator", life=life, said=1, reason="asked"))
    closed = await watcher.until(lambda: watcher.closed is not None, CLOSE_SECONDS_MAX)
    took = f"{time.monotonic() - asked:.1f} s"
    everybody = [*LEARNERS, *SYNCERS, EVALUATOR]
    late = await built.processes.done(everybody, LEAVE_SECONDS_MAX)
    return [
        Figure(
            "from the word to close until RunClosed", took, f"{CLOSE_SECONDS_MAX:.0f} s", closed,
            "" if closed else f"leader {watcher.leader}, position {watcher.position}",
        ),
        Figure(
            "processes that ended well after it",
            f"{len(everybody) - len(late)} of {len(everybody)}", "all", not late, ", ".join(late),
        ),
    ]  # fmt: skip


def _ended_by_themselves(exits: Sequence[Exit]) -> Figure:
    """Nobody may die of what was done to others; an id taken over by a newer life must.

    A process that finds no server when it starts ends, too, and is started again.
    """
    odd = [
        f"{each.seat} with code {each.code}: {each.last_words}"
        for each in exits
        if not each.struck and each.code != 0 and not _as_it_should(each)
    ]
    name = f"processes that died unstruck, of {len(exits)} ends"
    return Figure(name, str(len(odd)), "0", not odd, "; ".join(odd[:6]))


def _as_it_should(ended: Exit) -> bool:
    if ended.seat == ROGUE and ALLOWED_TO_THE_ROGUE in ended.last_words:
        return True
    return any(words in ended.last_words for words in ALLOWED)


def _tell_steps(built: Arena, report: Report) -> None:
    gaps: list[float] = []
    for path in sorted((built.folder / "steps").glob("*.jsonl")):
        pauses = built.processes.seats[path.stem].pauses
        for moments in lives_of(entries(path)):
            gaps += gaps_of(moments, pauses)
    told = report.stepping = stepping(gaps, PACE_SECONDS)
    report.figures.append(
        Figure(
            "living learners' stepping time",
            f"{100 * told.share:.2f} %",
            f"over {100 * SHARE_MIN:.1f} %",
            told.share > SHARE_MIN,
            timed=True,
        )
    )
    report.notes["steps"] = f"{told.steps:,} in {told.living_seconds:.0f} s of living time"
    report.notes["longest gap between two steps"] = f"{told.longest_gap_seconds:.2f} s"


async def _check(built: Arena, report: Report) -> None:
    """The tape as it is on the server, written to the folder, and all that must hold of it."""
    path = built.folder / "run.tape"
    await record(built.connection.tape(RUN), path, Voice(lambda note: None))
    store = built.servers.store
    place = find_place(path, f"{store.url}/soak", store.endpoint)
    tape = list(place.envelopes())
    report.figures += checks.none_lost(built.folder, tape)
    report.figures.append(checks.said_before(tape, report.faults.total()))
    report.figures.append(checks.ended_alike(tape, LEARNERS))
    held, counts = await asyncio.to_thread(checks.invariants_hold, place, built.folder)
    verified, adds_up, _ = await asyncio.to_thread(checks.proved, place)
    report.figures += [held, verified, adds_up]
    ended = await asyncio.to_thread(state_of, place, END)
    loss = await asyncio.to_thread(loss_of, built.config, ended)
    ended.close()
    closed = built.watcher.closed
    tokens = 0 if closed is None else closed.tokens
    beside = await asyncio.to_thread(loss_beside, built.config, tokens, built.folder / "twin")
    report.figures.append(
        Figure(
            "last held-out loss against the twin's",
            f"{loss:.4f} and {beside:.4f}: {100 * (loss / beside - 1):+.2f} %",
            f"within {100 * LOSS_SHARE_MAX:.0f} %",
            abs(loss / beside - 1) <= LOSS_SHARE_MAX,
            timed=True,
        )
    )
    report.notes["tokens"] = f"{tokens:,}"
    report.notes["invariants checked"] = sum(counts.values())
    report.notes |= tape_notes.notes_of(tape)


def _longest(moments: Sequence[float]) -> str:
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return f"{max(gaps, default=0.0):.1f} s"


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
