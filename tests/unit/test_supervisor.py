"""Processes kept alive: restarted after a crash, given up on, stopped in time by pid."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from decodiloco.local import supervisor as room
from decodiloco.local.plan import Role
from decodiloco.local.supervisor import Failed, Supervisor, end_leftovers

LIMIT_SECONDS = 20.0


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Role]:
    """Makes a role of a few lines of Python."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(room, "RESTART_PAUSE_SECONDS", 0.01)

    def role(code: str, name: str = "child") -> Role:
        (tmp_path / f"{name}_module.py").write_text(code)
        return Role(name, name, f"{name}_module", (str(tmp_path),))

    return role


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


WAITS = "import signal, pathlib, sys\npathlib.Path(sys.argv[1], 'up').touch()\nsignal.pause()\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS


def test_a_role_that_ends_well_is_not_started_again(
    tmp_path: Path, modules: Callable[[str], Role]
) -> None:
    async def told() -> None:
        said: list[str] = []
        await Supervisor(tmp_path, said.append).keep(modules("print('done')"))
        assert said == []
        assert (tmp_path / "logs" / "child.log").read_text() == "done\n"

    asyncio.run(told())


def test_a_role_that_is_killed_is_started_again(
    tmp_path: Path, modules: Callable[[str], Role]
) -> None:
    async def told() -> None:
        said: list[str] = []
        keeper = Supervisor(tmp_path, said.append)
        task = asyncio.create_task(keeper.keep(modules(WAITS)))
        await until((tmp_path / "up").exists)
        first = keeper.pid("child")
        assert keeper.kill("child") == first
        await until(lambda: keeper.pid("child") not in (None, first))
        assert said == ["child was ended by SIGKILL; started again in 0 s"]
        await keeper.stop(["child"])
        await task

    asyncio.run(told())


def test_a_role_that_was_stopped_may_be_kept_again(
    tmp_path: Path, modules: Callable[[str], Role]
) -> None:
    async def told() -> None:
        said: list[str] = []
        keeper, role = Supervisor(tmp_path, said.append), modules(WAITS)
        for life in range(2):
            task = asyncio.create_task(keeper.keep(role))
            await until((tmp_path / "up").exists)
            (tmp_path / "up").unlink()
            if life == 1:  # of its new life a crash is none of the stop's doing
                keeper.kill("child")
                await until((tmp_path / "up").exists)
            await keeper.stop(["child"])
            await task
        assert said == ["child was ended by SIGKILL; started again in 0 s"]

    asyncio.run(told())


def test_a_role_that_always_crashes_is_given_up_with_its_last_words(
    tmp_path: Path, modules: Callable[[str], Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told() -> None:
        monkeypatch.setattr(room, "RESTARTS_MAX", 1)
        said: list[str] = []
        with pytest.raises(Failed, match="child ended with exit code 3: no luck") as failure:
            await Supervisor(tmp_path, said.append).keep(
                modules("import sys\nprint('no luck')\nsys.exit(3)")
            )
        assert (len(said), failure.value.exit_code) == (1, 3)

    asyncio.run(told())


def test_a_role_that_was_asked_wrongly_is_not_tried_again(
    tmp_path: Path, modules: Callable[[str], Role]
) -> None:
    async def told() -> None:
        said: list[str] = []
        with pytest.raises(Failed) as failure:
            await Supervisor(tmp_path, said.append).keep(modules("import sys\nsys.exit(2)"))
        assert (said, failure.value.exit_code) == ([], 2)

    asyncio.run(told())


def test_one_that_ignores_sigterm_is_killed_in_the_end(
    tmp_path: Path, modules: Callable[[str], Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told() -> None:
        monkeypatch.setattr(room, "TERM_SECONDS", 0.2)
        keeper = Supervisor(tmp_path, lambda line: None)
        task = asyncio.create_task(keeper.keep(modules(STUBBORN)))
        await until((tmp_path / "up").exists)
        pid = keeper.pid("child")
        await keeper.stop(["child"])
        await task
        assert pid is not None and not psutil.pid_exists(pid)

    asyncio.run(told())


def test_a_role_that_does_not_run_cannot_be_killed(tmp_path: Path) -> None:
    async def told() -> None:
        keeper = Supervisor(tmp_path, lambda line: None)
        assert keeper.kill("nobody") is None
        await keeper.stop(["nobody"])

    asyncio.run(told())


def test_what_a_killed_start_left_running_is_ended_by_the_next(tmp_path: Path) -> None:
    left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    other = os.getpid()
    created = psutil.Process(left.pid).create_time()
    entries = [["learner-a", left.pid, created], ["syncer-1", other, created - 1.0]]
    (tmp_path / "processes.json").write_text(json.dumps(entries))
    assert end_leftovers(tmp_path) == ["learner-a"]
    assert left.wait(LIMIT_SECONDS) is not None
    assert not psutil.pid_exists(left.pid)
    assert end_leftovers(tmp_path) == []
