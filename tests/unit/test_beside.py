"""What the rooms beside a peer make of steps and processes."""

import sys
from pathlib import Path
from threading import Event

import psutil
import pytest

from tests.bench.bench_hivemind import Round, rounds_of
from tests.bench.beside import Plan, Told, groups, watched

FORKS = """
import os, pathlib, signal, sys
fork = os.fork()
if fork:
    pathlib.Path(sys.argv[2]).write_text(str(fork))
    pathlib.Path(sys.argv[1]).write_text("1.0\\n")
signal.pause()
"""


def test_a_stall_is_counted_from_the_begin_of_the_watch_and_to_its_end() -> None:
    told = Told(10.0, 20.0, 30.0, {"a": [(8.0,), (13.0,), (17.0,), (21.0,), (24.0,)]})

    assert (told.before("a"), told.after("a")) == ([(13.0,), (17.0,)], [(21.0,), (24.0,)])
    assert told.longest_before_seconds("a") == 4.0
    assert told.longest_after_seconds("a") == 6.0


def test_only_whole_rounds_count_and_a_version_is_one_of_all_fragments() -> None:
    merges = [0, 1, 2, 2, 3, 4, 5, 6]
    steps = [(1.0 + at, float(merge), 0.25) for at, merge in enumerate(merges)]
    told = Told(0.0, 20.0, 20.0, {"a": steps, "b": steps[:4]})

    assert rounds_of(told, fragments=2) == [Round(3, 3.0, 0.75), Round(2, 2.0, 0.5)]


def test_a_watch_without_a_whole_round_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no learner had a whole round"):
        rounds_of(Told(0.0, 9.0, 9.0, {"a": [(1.0, 0.0, 0.1)], "b": []}), fragments=4)


def test_a_killed_learner_takes_along_what_it_forked(tmp_path: Path) -> None:
    steps, fork = tmp_path / "a.steps", tmp_path / "fork"
    plan = Plan(("a",), "a", warm_steps=1, before_seconds=0.0, after_seconds=0.0)

    with groups(tmp_path) as spawn:
        told = watched(
            tmp_path,
            lambda name: spawn(name, sys.executable, "-c", FORKS, str(steps), str(fork)),
            plan,
        )

    assert told.steps == {"a": [(1.0,)]}
    assert _has_ended(int(fork.read_text()))


def test_a_learner_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    plan = Plan(("a",), "a", warm_steps=1, before_seconds=0.0, after_seconds=0.0)

    with groups(tmp_path) as spawn, pytest.raises(RuntimeError, match="a ended: no model"):
        watched(tmp_path, lambda name: spawn(name, sys.executable, "-c", "exit('no model')"), plan)


def _has_ended(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process is gone in that time, or waits for its new parent to hear of its end."""
    for _ in range(round(seconds / 0.01)):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        Event().wait(0.01)
    return False
