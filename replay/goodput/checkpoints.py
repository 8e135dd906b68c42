"""Data parallelism with checkpoints: the exact formula (Daly 2006), and a simulation to check it.

tau is the work between two checkpoints, C what one costs, R a restore, M the mean time between
failures of the whole job; all in seconds. Failures are exponential and may strike at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

CLASSES = ("useful", "checkpoint_save", "lost_work", "restore")


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A job that saves every `interval_seconds` of work and restores after a failure."""

    mtbf_seconds: float
    interval_seconds: float
    save_seconds: float
    restore_seconds: float


def daly_efficiency(job: Checkpointed) -> float:
    """E = tau / (M e^(R/M) (e^((tau + C)/M) - 1)), exact for exponential failures."""
    m = job.mtbf_seconds
    cycle = job.interval_seconds + job.save_seconds
    return job.interval_seconds / (m * math.exp(job.restore_seconds / m) * math.expm1(cycle / m))


def young_interval_seconds(mtbf_seconds: float, save_seconds: float) -> float:
    """tau = sqrt(2 C M): the first-order best interval."""
    return math.sqrt(2.0 * save_seconds * mtbf_seconds)


def simulate(job: Checkpointed, failures: int, uniforms: Iterator[float]) -> dict[str, float]:
    """Shares of time by class over so many failures; they add up to 1."""
    seconds = dict.fromkeys(CLASSES, 0.0)
    cycle = job.interval_seconds + job.save_seconds
    restoring = False
    for _ in range(failures):
        left = -math.log1p(-next(uniforms)) * job.mtbf_seconds
        if restoring:
            spent = min(left, job.restore_seconds)
            seconds["restore"] += spent
            left -= spent
            if left <= 0.0:
                continue
        saved = left // cycle
        rest = left - saved * cycle
        seconds["useful"] += saved * job.interval_seconds
        seconds["checkpoint_save"] += saved * job.save_seconds
        seconds["lost_work"] += rest  # also a checkpoint that was not finished
        restoring = True
    total = sum(seconds.values())
    return {kind: seconds[kind] / total for kind in CLASSES}


@dataclass(frozen=True, slots=True)
class Known:
    """A job that others have described, to hold the simulation against."""

    name: str
    job: Checkpointed


def known_jobs() -> tuple[Known, ...]:
    """The five jobs of `research/reliability.md` B3, each with Young's interval."""
    year = 365.25 * 86400.0
    told = (
        ("16,384 GPUs, as Llama 3 405B", 5.8 * year / 16_384, 60.0, 600.0),
        ("16,384 GPUs at 3.4 years", 3.4 * year / 16_384, 120.0, 900.0),
        ("100,000 GPUs, restore 15 min", 3.4 * year / 100_000, 30.0, 900.0),
        ("100,000 GPUs, saved to memory", 3.4 * year / 100_000, 2.0, 120.0),
        ("1,000,000 chips at 1 year", year / 1_000_000, 2.0, 30.0),
    )
    return tuple(
        Known(name, Checkpointed(mtbf, young_interval_seconds(mtbf, save), save, restore))
        for name, mtbf, save, restore in told
    )
