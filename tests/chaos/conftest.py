"""One finished demo for all tests that only read it: real processes, a real server, real text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = 24
LIMIT_SECONDS = 240.0


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run that went to its end. Copy it before changing anything in it."""
    folder = tmp_path_factory.mktemp("finished") / "demo"
    texts = Path(json.__file__).parent.parent / "*.py"  # enough not to learn it by heart
    options = ("--learners", "2", "--steps", str(STEPS), "--kill", "none")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "decodiloco.cli", "demo", "--json"),
            *("--dir", str(folder), "--data", str(texts), *options),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return folder
