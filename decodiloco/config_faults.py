"""What is wrong with a config, told so that its author can put it right.

Knows pydantic's faults; it must not know what the settings mean.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from streams.printing import printable
from streams.subjects import NAME_RULE

_SECRET = re.compile(r"//[^\s/'\"]*@")  # a name and password in an address
_NO_TABLE = ("model_type", "model_attributes_type", "dict_type")


def fault_lines(error: ValidationError, origin: str, root: type[BaseModel]) -> list[str]:
    """One line a setting: what is wrong with it, or with which of its forms.

    `origin` is where the config came from, `root` the model of its outermost table.
    """
    told: dict[str, list[str]] = {}
    for fault in error.errors(include_url=False):
        place = printable(".".join(_keys(fault["loc"], root)))
        told.setdefault(place, []).append(_told(fault, root))
    return [f"{origin}: {place}: {', or: '.join(reasons)}" for place, reasons in told.items()]


def first_difference(ours: BaseModel, theirs: BaseModel) -> str | None:
    """The first setting in which our `[run]` is not that of the run, and what to do; or None."""
    here, there = _flat(ours.model_dump(mode="json")), _flat(theirs.model_dump(mode="json"))
    for key in sorted(here):
        if here[key] != there[key]:
            return (
                f"run.{key} is {here[key]!r} here and {there[key]!r} in the run; "
                "set it back, or open a run of another name"
            )
    return None


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _told(fault: Any, root: type[BaseModel]) -> str:
    kind, given = fault["type"], _shown(fault["input"])
    if kind == "extra_forbidden":
        return _unknown(fault["loc"], root)
    if kind == "missing":
        return _missing(fault["loc"], root)
    if kind in _NO_TABLE:
        return f"{given} stands where a table of settings is meant"
    if kind == "string_pattern_mismatch":  # only names have a pattern
        return f"{given}: {NAME_RULE}"
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    return str(fault["msg"]).replace("Input", given)


def _unknown(loc: Sequence[Any], root: type[BaseModel]) -> str:
    known = sorted(_table_at(loc[:-1], root).model_fields)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"no such setting; {hint}"


def _missing(loc: Sequence[Any], root: type[BaseModel]) -> str:
    field = _table_at(loc[:-1], root).model_fields[str(loc[-1])]
    if field.description is None:
        return f"there is no table [{'.'.join(str(part) for part in loc)}]; write one"
    return f"not given, and it has no default. {field.description}"


def _shown(given: Any) -> str:
    """A value as its author wrote it, near enough, and not too long."""
    text = str(given).lower() if isinstance(given, bool) else _SECRET.sub("//", repr(given))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys(loc: Sequence[Any], root: type[BaseModel]) -> list[str]:
    """The keys of a place in the file, without the names of the forms that were tried there."""
    table: Any = root
    keys: list[str] = []
    for part in loc:
        if not (isinstance(table, type) and issubclass(table, BaseModel)):
            break
        keys.append(str(part))
        field = table.model_fields.get(str(part))
        table = field.annotation if field else None
    return keys


def _table_at(keys: Sequence[Any], root: type[BaseModel]) -> type[BaseModel]:
    table = root
    for key in keys:
        table = cast(type[BaseModel], table.model_fields[str(key)].annotation)
    return table
