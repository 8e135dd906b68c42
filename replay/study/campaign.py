"""All cases and seeds of a study, in some processes; each result is kept as soon as it is there.

A case and seed that the file has is not run again, so a campaign that was stopped goes on.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from replay.commit import commit
from replay.progress import Tell
from replay.study.cases import Case
from replay.study.results import (
    Circumstances,
    Result,
    add_circumstances,
    add_result,
    read_results,
)
from replay.study.settings import Study


def run_campaign(
    cases: Sequence[Case],
    seeds: range,
    study: Study,
    file: Path,
    processes: int,
    tell: Tell,
) -> Iterator[Result]:
    """Runs what the file lacks, all cases of a seed before the next seed; yields what is new."""
    there = {(result.case, result.seed) for result in read_results(file, study)}
    lacking = [(case, seed) for seed in seeds for case in cases if (case.name, seed) not in there]
    total = len(cases) * len(seeds)
    done = total - len(lacking)
    tell(done, total)
    if not lacking:
        return
    add_circumstances(file, circumstances(study))
    for result in _results(lacking, study, processes):
        add_result(file, result)
        done += 1
        tell(done, total)
        yield result


def circumstances(study: Study) -> Circumstances:
    """Under what this process makes results."""
    from importlib.metadata import version

    return Circumstances(
        settings=study.digest,
        study=study.model_dump(mode="json"),
        commit=commit(),
        torch=version("torch"),
        cpu=_cpu(),
    )


def _results(lacking: Sequence[tuple[Case, int]], study: Study, processes: int) -> Iterator[Result]:
    """In the order in which they are done."""
    trial = _trial()
    if processes == 1:
        yield from (trial(case, seed, study) for case, seed in lacking)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        asked = [pool.submit(trial, case, seed, study) for case, seed in lacking]
        for future in as_completed(asked):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _trial() -> Callable[[Case, int, Study], Result]:
    """Torch loads only where something is trained."""
    from replay.study.trial import tried

    return tried


def _cpu() -> str:
    """What the kernel calls this processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
