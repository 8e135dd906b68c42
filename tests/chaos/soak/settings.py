"""The run that is soaked: a small model, paced learners, and waits short enough to be tried often.

Numbers and tables only. The twin is the same run, without faults.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LEARNERS = ("a", "b", "c", "d")
SYNCERS = ("syncer-1", "syncer-2")
ROGUE = "x"
REGION = "home"

PACE_SECONDS = 0.25
"""Between the beginnings of two steps: a step computes for a few milliseconds, then waits."""

TAKEOVER_SECONDS = 2.0
LEARNING_RATE = 2e-3

TEXTS = Path(json.__file__).parent.parent / "*.py"


def tables(name: str) -> dict[str, Any]:
    """`[run]` of a soak, or of its twin."""
    return {
        "name": name,
        "fragments": 4,
        "inner_steps": 16,
        "quorum": 2,
        "learners_min": len(LEARNERS),
        "snapshot_merges": 40,
        "window": {"step_seconds": PACE_SECONDS, "upload_seconds": 0.05},
        "outer": {"momentum": 0.5},
        "times": {
            "heartbeat_seconds": 0.5,
            "takeover_seconds": TAKEOVER_SECONDS,
            "lost_seconds": 6.0,
            "orphan_seconds_max": 300.0,
            "fetch_seconds_max": 3.0,
        },
        "model": {"layers": 1, "width": 32, "heads": 2, "context": 32},
        "training": {
            "data": str(TEXTS),
            "shards": 8,
            "batch_sequences": 4,
            "lr": LEARNING_RATE,
            "checkpoint_steps": 64,
            "evaluate_merges": 40,
            "evaluate_tokens": 65536,
        },
    }
