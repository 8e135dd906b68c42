"""Many cases of one room, counted: what came of them, how long the worst took, what it held.

A case that raises what its room does not allow, takes too long or wants too much memory is a
fault, and is told with the command that makes it again.
"""

from __future__ import annotations

import resource
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streams.errors import Failure
from tests.fuzz.bending import Bender

CASE_SECONDS_MAX = 2.0  # of processor time; the slowest sound case takes some milliseconds
ROOM_BYTES = 1 << 30  # address space that a campaign may take beyond what stands at its start
HELD_BYTES_MAX = 64 << 20  # at the peak of one case, of those that are measured
MEASURED_EVERY = 256
FAULTS_MAX = 20


class Room(Protocol):
    """Something that reads what strangers may write."""

    name: str
    allowed: tuple[type[Failure], ...]

    def read(self, bender: Bender) -> str:
        """Bends something sound, reads it, and names what came of it."""
        ...


@dataclass(slots=True)
class Findings:
    """What a campaign came to."""

    room: str
    cases: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    held_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def told(self) -> list[str]:
        """One line of figures, one for each outcome, one for each fault."""
        rate = self.cases / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.room}: {self.cases:,} cases, {rate:,.0f} a second, the slowest "
            f"{1000 * self.slowest_seconds:.1f} ms, at most {self.held_bytes / 2**20:.1f} MiB "
            f"held, {len(self.outcomes)} outcomes, {len(self.faults)} faults"
        ]
        lines += [f"  {count:>9,} {outcome}" for outcome, count in self.outcomes.most_common()]
        return lines + [f"  FAULT {fault}" for fault in self.faults]


def campaign(room: Room, seed: int, count: int, first: int = 0, seconds: float = 1e9) -> Findings:
    """Cases `first` to `first + count` of a seed, or as many as fit into so many seconds."""
    findings = Findings(room.name)
    began = time.monotonic()
    with bounded_memory():
        for number in range(first, first + count):
            if time.monotonic() - began > seconds or len(findings.faults) >= FAULTS_MAX:
                break
            _case(room, seed, number, findings)
    findings.seconds = time.monotonic() - began
    return findings


def _case(room: Room, seed: int, number: int, findings: Findings) -> None:
    bender = Bender(f"{seed} {room.name} {number}")
    is_measured = number % MEASURED_EVERY == 0
    if is_measured:
        tracemalloc.start()
    began = time.thread_time()
    try:
        outcome = room.read(bender)
    except room.allowed as error:
        outcome = type(error).__name__
    except Exception as error:
        outcome = f"fault: {type(error).__name__}"
        findings.faults.append(_told(room, seed, number, f"{type(error).__name__}: {error}"))
    spent_seconds = time.thread_time() - began
    if is_measured:
        held_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        findings.held_bytes = max(findings.held_bytes, held_bytes)
        if held_bytes > HELD_BYTES_MAX:
            findings.faults.append(_told(room, seed, number, f"held {held_bytes:,} bytes"))
    if spent_seconds > CASE_SECONDS_MAX:
        findings.faults.append(_told(room, seed, number, f"took {spent_seconds:.1f} s"))
    findings.slowest_seconds = max(findings.slowest_seconds, spent_seconds)
    findings.outcomes[outcome] += 1
    findings.cases += 1


def _told(room: Room, seed: int, number: int, what: str) -> str:
    again = f"python -m tests.fuzz --room {room.name} --seed {seed} --first {number} --count 1"
    return f"{what[:200]!r}: {again}"


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Nobody within gets more than a gibibyte beyond what is there: MemoryError instead."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
