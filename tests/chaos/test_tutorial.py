"""The lines of the tutorial that reads a tape, typed as they stand there against a real demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tidy.house import ROOT

PAGE = ROOT / "docs" / "tutorial" / "read-a-tape.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATUS = "echo $?"


@dataclass(frozen=True)
class Typed:
    """One command of the page, and the lines that must be among what it prints, in order."""

    command: str
    shown: tuple[str, ...]


def typed_in(page: str) -> Iterator[Typed]:
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Typed(command, tuple(shown))


def pattern(shown: str) -> re.Pattern[str]:
    """A shown line as a pattern: `...` stands for anything, runs of blanks for each other."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in shown.split("...")]
    return re.compile(r"\s*" + r".*".join(parts).replace(r".*\s+", ".*") + r"\s*")


def missing(shown: tuple[str, ...], printed: str) -> str | None:
    """The first shown line that is not printed after those before it."""
    lines = iter(printed.splitlines())
    for each in shown:
        if not any(pattern(each).fullmatch(line) for line in lines):
            return each
    return None


@pytest.mark.long
def test_every_line_of_the_tutorial_does_what_the_page_says(
    finished_demo: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished_demo, tmp_path / "runs" / "demo")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    commands = list(typed_in(PAGE.read_text(encoding="utf-8")))
    assert len(commands) > 12

    code = 0
    for number, typed in enumerate(commands):
        asked_for = typed.command == STATUS
        is_followed = number + 1 < len(commands) and commands[number + 1].command == STATUS
        done = subprocess.run(
            ["bash", "-c", f"(exit {code}); {typed.command}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        said = f"$ {typed.command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in said, said
        assert asked_for or is_followed or done.returncode == 0, said
        gone = missing(typed.shown, done.stdout)
        assert gone is None, f"not printed: {gone}\n{said}"
        code = done.returncode
