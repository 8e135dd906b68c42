"""The demo's run settings, in one place, and how they are written into a run folder's run.toml.

Knows what a demo trains. It must not know how processes are started or watched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decodiloco.config import Config

LEARNERS = 3
STEPS = 150  # with these a learner makes some 400 inner steps; a killed one some 240
SYNCERS = 2
HEADER = "# Written by `decodiloco demo` or `up`. The address of an embedded server changes.\n"


def demo_tables(
    name: str, learners: int, steps: int, data: str | None, places: Mapping[str, str]
) -> dict[str, Any]:
    """The tables of a demo's run.toml; `places` are the settings of `[here]`.

    A small decoder, six fragments with a version each twelve inner steps, and outer momentum
    0.5: a fragment gets too few versions here for 0.9 to pay back.
    """
    training: dict[str, Any] = {
        "batch_sequences": 4,
        "checkpoint_steps": 48,  # the default, H, would fill half a gigabyte
        "evaluate_merges": 12,
        "evaluate_tokens": 16384,
    }
    if data is not None:
        training["data"] = data
    return {
        "run": {
            "name": name,
            "fragments": 6,
            "inner_steps": 12,
            "learners_min": learners,
            "window": {"gamma": 0.8, "step_seconds": 0.2, "upload_seconds": 0.05},
            "outer": {"momentum": 0.5},
            "times": {"lost_seconds": 5.0},
            "end": {"steps": steps},
            "model": {"layers": 4, "width": 128, "heads": 4, "context": 64},
            "training": training,
        },
        "here": dict(places),
    }


def as_toml(tables: Mapping[str, Any]) -> str:
    """TOML text of nested tables of numbers, strings, booleans and lists."""
    return HEADER + "\n".join(_lines(tables, ())) + "\n"


def asked_settings(config: Config) -> dict[str, Any]:
    """What a config's author wrote, without defaults: what a run folder's run.toml holds."""
    return _without_none(config.model_dump(mode="json", exclude_unset=True))


def differences(there: Config, asked: Config) -> list[str]:
    """Settings in which two configs of one run part, one a line; where things lie is not one.

    The store is compared too: a run's bytes are in one place.
    """
    old = dict(_flat(there.run.model_dump(mode="json"), "run"))
    new = dict(_flat(asked.run.model_dump(mode="json"), "run"))
    old["here.store"], new["here.store"] = there.here.store, asked.here.store
    return [
        f"{key}: {old.get(key)!r} there, {new.get(key)!r} asked"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and plain:
        yield f"\n[{'.'.join(path)}]"
    for key, value in plain.items():
        yield f"{key} = {_literal(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines(value, (*path, key))


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(_escaped(letter) for letter in value) + '"'
    return "[" + ", ".join(_literal(item) for item in value) + "]"


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
