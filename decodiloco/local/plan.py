"""What a local cluster runs and when it is hurt: roles with their commands, and kills.

Pure: names and numbers in, names and numbers out. It must not know processes or servers.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

from decodiloco.errors import ConfigInvalid
from streams.events import HardshipInjected

LEARNERS_MAX = 200
MERGERS_MAX = 16
_KILL = re.compile(r"([a-z0-9][a-z0-9-]{0,47})@([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Kill:
    """A `kill -9` of `target` (learner, syncer, or one id) once the run is at syncer step `step`.

    `learner` is the living learner with the last id, `syncer` the one that leads.
    """

    target: str
    step: int


@dataclass(frozen=True, slots=True)
class Role:
    """One process of a cluster: its name (also of its log), its id, the module and arguments."""

    name: str
    id: str
    module: str
    arguments: tuple[str, ...]


def parse_kill(text: str, end_steps: int) -> Kill:
    """`learner@40`, `syncer@60` or `b@40`; ConfigInvalid when it cannot be meant."""
    match = _KILL.fullmatch(text)
    if match is None:
        raise ConfigInvalid(f"--kill {text!r}: write it as learner@40, syncer@60 or an id, b@40")
    kill = Kill(match[1], int(match[2]))
    if kill.step >= end_steps:
        raise ConfigInvalid(f"--kill {text}: the run ends at step {end_steps}; strike before that")
    return kill


def kills_of(asked: Sequence[str], end_steps: int, ids: Sequence[str]) -> tuple[Kill, ...]:
    """The kills asked for, by step; by default a learner at a quarter, the syncer at a half.

    `none` alone asks for none. A target that is no role and none of `ids` is refused.
    """
    if list(asked) == ["none"]:
        return ()
    if not asked:
        return (Kill("learner", max(1, end_steps // 4)), Kill("syncer", max(1, end_steps // 2)))
    kills = [parse_kill(text, end_steps) for text in asked]
    for kill in kills:
        if kill.target not in ("learner", "syncer", *ids):
            known = ", ".join(ids)
            raise ConfigInvalid(f"--kill {kill.target}@{kill.step}: no such target; {known}")
    return tuple(sorted(kills, key=lambda kill: (kill.step, kill.target)))


def still_to_come(
    kills: Sequence[Kill], struck: Sequence[HardshipInjected], syncers: Sequence[str]
) -> tuple[Kill, ...]:
    """The kills that do not stand on the tape yet; a hardship's seed is the step it was due at."""
    done = [(hardship.target, hardship.seed) for hardship in struck]
    return tuple(
        kill
        for kill in kills
        if not any(
            step == kill.step and _is_of(kill.target, target, syncers) for target, step in done
        )
    )


def victim(kill: Kill, living: Sequence[str], leader: str | None) -> str | None:
    """The id that a kill strikes now, or None while there is no such process."""
    if kill.target == "syncer":
        return leader
    if kill.target == "learner":
        return max(living, default=None)
    return kill.target if kill.target in (*living, leader) else None


def learner_ids(count: int) -> tuple[str, ...]:
    """a, b, c ...; past 26 they are l001, l002 ..."""
    if not 1 <= count <= LEARNERS_MAX:
        raise ConfigInvalid(f"{count} learners: one machine runs 1 to {LEARNERS_MAX}")
    if count <= len(string.ascii_lowercase):
        return tuple(string.ascii_lowercase[:count])
    return tuple(f"l{number:03}" for number in range(1, count + 1))


def syncer_ids(count: int) -> tuple[str, ...]:
    """syncer-1, syncer-2 ...: one leads, the others stand by."""
    if not 1 <= count <= 16:
        raise ConfigInvalid(f"--syncers {count}: a run has 1 to 16")
    return tuple(f"syncer-{number}" for number in range(1, count + 1))


def merger_ids(count: int) -> tuple[str, ...]:
    """m1, m2 ...; none where the leading syncer merges itself."""
    if not 0 <= count <= MERGERS_MAX:
        raise ConfigInvalid(f"--mergers {count}: one machine runs 0 to {MERGERS_MAX}")
    return tuple(f"m{number}" for number in range(1, count + 1))


def syncer_roles(folder: str, count: int) -> tuple[Role, ...]:
    return tuple(_process("syncer", folder, id_, id_) for id_ in syncer_ids(count))


def merger_roles(folder: str, count: int) -> tuple[Role, ...]:
    return tuple(_process("merger", folder, f"merger-{id_}", id_) for id_ in merger_ids(count))


def learner_roles(folder: str, count: int) -> tuple[Role, ...]:
    return tuple(_process("learner", folder, f"learner-{id_}", id_) for id_ in learner_ids(count))


def spot_roles(folder: str, count: int) -> tuple[Role, ...]:
    """Learners spot-1, spot-2 ... whose machines come and go."""
    ids = [f"spot-{number}" for number in range(1, count + 1)]
    return tuple(_process("learner", folder, f"learner-{id_}", id_) for id_ in ids)


def evaluator_role(folder: str) -> Role:
    return _process("evaluator", folder, "evaluator", "evaluator")


def recorder_role(folder: str, follow: bool = True) -> Role:
    """The one that writes the tape file, following the tape or once: `replay record`."""
    arguments: tuple[str, ...] = ("record", folder, "-o", f"{folder}/run.tape")
    if follow:
        arguments = (*arguments, "--follow")
    return Role("recorder", "recorder", "replay.cli", arguments)


def archive_role(folder: str, follow: bool = True) -> Role:
    """The one that keeps the tape in the store, too, as it grows or once."""
    arguments: tuple[str, ...] = ("archive", folder)
    if not follow:
        arguments = (*arguments, "--once")
    return Role("archive", "archive", "decodiloco.cli", arguments)


def opener_role(folder: str) -> Role:
    return Role("open", "open", "decodiloco.cli", ("open", "--config", f"{folder}/run.toml"))


def _process(command: str, folder: str, name: str, id_: str) -> Role:
    arguments: tuple[str, ...] = (command, "--config", f"{folder}/run.toml")
    if command != "evaluator":
        arguments = (*arguments, "--id", id_)
    return Role(name, id_, "decodiloco.cli", arguments)


def _is_of(wanted: str, target: str, syncers: Sequence[str]) -> bool:
    if wanted == "syncer":
        return target in syncers
    if wanted == "learner":
        return target not in syncers
    return wanted == target
