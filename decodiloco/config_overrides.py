"""What `--set key=value` does to the tables of a config. Knows TOML values, and no setting."""

from __future__ import annotations

import tomllib
from typing import Any

from decodiloco.errors import ConfigInvalid
from streams.address import without_user


def override(tables: dict[str, Any], setting: str) -> None:
    """Writes `key=value` into nested tables. Raises ConfigInvalid for what is none."""
    path, equals, text = setting.partition("=")
    if not equals or not path:
        told = without_user(setting)  # an address may have been written where a key is missing
        raise ConfigInvalid(f"--set {told!r}: write it as key=value, such as outer.lr=0.4")
    keys = path.split(".")
    if keys[0] not in ("run", "here"):
        keys.insert(0, "run")
    value = _value(text)
    table = tables
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigInvalid(f"--set {without_user(setting)!r}: {key} is a value, not a table")
    table[keys[-1]] = value


def _value(text: str) -> Any:
    """A TOML value, else the text as it stands."""
    try:
        tables = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return tables["value"] if len(tables) == 1 else text
