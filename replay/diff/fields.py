"""Two values laid side by side: which of their parts differ, by path. Knows no tape. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from pydantic import BaseModel

ABSENT = "absent"
DIGITS = 16
TEXT_MAX = 120


@dataclass(frozen=True, slots=True)
class Changed:
    """One part that differs: where it stands in the whole, and what it is on either side."""

    path: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.path}: {self.one} -> {self.other}"


def changed(one: object, other: object, path: str = "") -> Iterator[Changed]:
    """The smallest parts in which two values differ, in the order of the first one's parts.

    Models, dataclasses, mappings and sequences are walked through; what only one side has is
    `absent` on the other.
    """
    if isinstance(one, _Absent) or isinstance(other, _Absent):
        yield Changed(path, told(one), told(other))
        return
    parts, others = _parts(one), _parts(other)
    if parts is None or others is None:
        if one != other or type(one) is not type(other):
            yield Changed(path, told(one), told(other))
        return
    for name in (*parts, *(name for name in others if name not in parts)):
        mine, theirs = parts.get(name, _ABSENT), others.get(name, _ABSENT)
        yield from changed(mine, theirs, _below(path, name))


def told(value: object) -> str:
    """A value in a few signs: digests by their first digits, models by their parts."""
    match value:
        case _Absent():
            text = ABSENT
        case bytes():
            text = value.hex()[:DIGITS] or "empty"
        case str():
            text = value
        case _:
            parts = _parts(value)
            text = repr(value) if parts is None else _told_whole(value, parts)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _told_whole(value: object, parts: Mapping[str | int, object]) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(told(each) for each in parts.values()) + "]"
    return "{" + ", ".join(f"{name} {told(each)}" for name, each in parts.items()) + "}"


def _parts(value: object) -> Mapping[str | int, Any] | None:
    """The parts of a composed value by name or number; None for a plain one."""
    match value:
        case BaseModel():
            return {name: getattr(value, name) for name in type(value).model_fields}
        case list() | tuple():
            return dict(enumerate(value))
        case dict():
            return value
        case _ if is_dataclass(value):
            return {each.name: getattr(value, each.name) for each in fields(value)}
        case _:
            return None


def _below(path: str, name: str | int) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


class _Absent:
    """What the other side does not have."""


_ABSENT = _Absent()
