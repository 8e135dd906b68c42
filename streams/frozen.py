"""A frozen value with some fields changed, as `dataclasses.replace` gives it, several times faster.

Machines make a new state for every fact; with thirty fields that is most of what a fold costs.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(value: T, **changes: Any) -> T:
        """The same value with these fields changed; for dataclasses with slots and no checks."""
        kind = type(value)
        shape = _shapes.get(kind)
        if shape is None:
            shape = _shapes[kind] = _Shape(kind)
        values = list(shape.get(value))
        for name, changed in changes.items():
            values[shape.places[name]] = changed
        made = object.__new__(kind)
        for put, one in zip(shape.puts, values, strict=True):
            put(made, one)
        return made


class _Shape:
    """How the fields of one class are read and written, past its being frozen."""

    def __init__(self, kind: type[Any]) -> None:
        names = tuple(kind.__slots__)
        assert len(names) >= 2 and not hasattr(kind, "__post_init__"), kind
        self.get: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
        self.puts = tuple(getattr(kind, name).__set__ for name in names)
        self.places = {name: place for place, name in enumerate(names)}


_shapes: dict[type[Any], _Shape] = {}
