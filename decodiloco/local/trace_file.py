"""A trace of spot machines or a schedule from a file: how many extra learners there are, when.

Two forms: JSON as in skypilot's spot-traces, `{"metadata": {"gap_seconds": 300}, "data": [0, 16]}`;
or CSV of `seconds,learners` lines, each holding until the next one. A trace repeats.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from decodiloco.errors import ConfigInvalid
from decodiloco.local.availability import Availability

POINTS_MAX = 10_000_000


def read_trace(path: Path) -> Availability:
    """The trace in a file. Raises ConfigInvalid naming the line or entry that is no count."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigInvalid(f"trace {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigInvalid(f"trace {path}: not text in UTF-8") from None
    spans = _of_json(path, text) if text.lstrip().startswith("{") else _of_csv(path, text)
    if not spans or len(spans) > POINTS_MAX:
        raise ConfigInvalid(f"trace {path}: {len(spans)} points; 1 to {POINTS_MAX:,} are read")
    return Availability(tuple(spans))


def _of_json(path: Path, text: str) -> list[tuple[float, float]]:
    try:
        told = json.loads(text)
        gap_seconds, counts = told["metadata"]["gap_seconds"], told["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigInvalid(
            f'trace {path}: want {{"metadata": {{"gap_seconds": 300}}, "data": [...]}} ({error!r})'
        ) from None
    if not isinstance(counts, list):
        raise ConfigInvalid(f"trace {path}: data is no list")
    gap = _count(path, "gap_seconds", gap_seconds)
    if gap == 0.0:
        raise ConfigInvalid(f"trace {path}: gap_seconds is 0")
    return [(gap, _count(path, f"data[{n}]", count)) for n, count in enumerate(counts)]


def _of_csv(path: Path, text: str) -> list[tuple[float, float]]:
    """The last line has no next one: it holds as long as the line before it."""
    points: list[tuple[float, float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split(",")
        if not line.strip() or line.startswith("#") or fields[0].strip() == "seconds":
            continue
        if len(fields) != 2:
            raise ConfigInvalid(f"trace {path}, line {number}: want seconds,learners")
        moment, count = (_count(path, f"line {number}", field.strip()) for field in fields)
        if points and moment <= points[-1][0]:
            raise ConfigInvalid(f"trace {path}, line {number}: seconds must grow")
        points.append((moment, count))
    if len(points) < 2:
        raise ConfigInvalid(f"trace {path}: fewer than two points")
    lengths = [after[0] - before[0] for before, after in pairwise(points)]
    counts = [count for _, count in points]
    return list(zip([*lengths, lengths[-1]], counts, strict=True))


def _count(path: Path, where: str, told: object) -> float:
    """A finite number that is not negative."""
    value = math.nan
    if isinstance(told, (str, int, float)) and not isinstance(told, bool):
        with suppress(ValueError, OverflowError):  # no number, or one beyond a float: told below
            value = float(told)
    if not (math.isfinite(value) and value >= 0):
        raise ConfigInvalid(f"trace {path}: {where} is {told!r}, not a number of 0 or more")
    return value
