"""The file of results: a line for each session's circumstances, and one for each (case, seed).

A campaign that was stopped goes on where its file ends. Lines are JSON with sorted keys, so that
the file can be kept in git and read without us.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from decodiloco.errors import ConfigInvalid
from replay.errors import Unwritable
from replay.study.settings import Study
from streams.errors import AskedWrongly


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Under what the results after this line were made; `settings` is the study's digest."""

    settings: str
    study: dict[str, float | int | str]
    commit: str
    torch: str
    cpu: str


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case and seed.

    `loss` is the held-out loss of the merged model at the end, `losses` those along the way as
    (share of the run's tokens, loss); `goodput` is in percent of the cluster's time, by the
    tape; `versions` are merges of a fragment; `per_merge` the learners in a merge, on average;
    `steps_between` the inner steps between two versions of a fragment; `merged` the percent of
    trained tokens that were merged; `lives` how often a learner joined.
    """

    case: str
    seed: int
    loss: float
    losses: tuple[tuple[float, float], ...]
    merges: int
    versions: float
    tokens: int
    elapsed_steps: float
    goodput: float
    per_merge: float
    steps_between: float
    merged: float
    lives: int
    cpu_seconds: float


RESULT = TypeAdapter(Result)
CIRCUMSTANCES = TypeAdapter(Circumstances)
Line = TypeVar("Line")


def read_results(path: Path, study: Study | None = None) -> list[Result]:
    """All results of a file, in its order; none when there is no file.

    Raises AskedWrongly when they were made with other settings than `study`.
    """
    found = []
    for number, told in enumerate(_lines(path), 1):
        if "settings" in told:
            if study is not None and told["settings"] != study.digest:
                raise AskedWrongly(
                    f"{path} was made with the settings {told['settings']}, and these are "
                    f"{study.digest}: name another file with --results"
                )
            continue
        found.append(_checked(RESULT, told, f"{path} line {number}"))
    return found


def circumstances_of(path: Path) -> list[Circumstances]:
    """Under what the results of a file were made, in its order."""
    return [
        _checked(CIRCUMSTANCES, told, f"{path} line {number}")
        for number, told in enumerate(_lines(path), 1)
        if "settings" in told
    ]


def add_circumstances(path: Path, circumstances: Circumstances) -> None:
    """Says under what the next results are made, unless the file's last such line says so."""
    before = circumstances_of(path)
    if not before or before[-1] != circumstances:
        _add(path, asdict(circumstances))


def add_result(path: Path, result: Result) -> None:
    """Adds a line."""
    _add(path, asdict(result))


def _checked(form: TypeAdapter[Line], told: dict[str, object], where: str) -> Line:
    try:
        return form.validate_python(told)
    except ValidationError as error:
        fault = error.errors()[0]
        raise ConfigInvalid(
            f"{where} is no result of the study: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        ) from None


def _add(path: Path, told: dict[str, object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told, sort_keys=True) + "\n")
    except OSError as error:
        raise Unwritable(f"{path}: {error.strerror or error}") from None


def _lines(path: Path) -> list[dict[str, object]]:
    """The lines; a last one that was cut short by a kill is dropped from the file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise ConfigInvalid(f"{path} is no file of results: {error}") from None
