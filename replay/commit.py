"""Which code this is, for results and failures that somebody wants to come to again."""

from __future__ import annotations

import subprocess
from pathlib import Path

from replay.times import GIT_SECONDS_MAX


def commit() -> str:
    """The commit, with a mark when files differ from it, in a clone with git; else the version."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError):
        from importlib.metadata import version

        return f"version {version('decodiloco')}"
    return told.stdout.strip()
