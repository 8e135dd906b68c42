"""A frozen value with some fields changed, as `dataclasses.replace` gives it, many times faster.

Machines make new states for every fact; with thirty fields that is most of what a fold costs.
The classes have no slots, so that all fields are copied by one act. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(value: T, **changes: Any) -> T:
        """The same value with these fields changed; for dataclasses without slots or checks."""
        fields = value.__dict__
        changed = fields | changes
        if len(changed) != len(fields):
            raise TypeError(f"{type(value).__name__} has no {sorted(changed.keys() - fields)}")
        made = _new(type(value))
        _put(made, "__dict__", changed)
        return made


_new, _put = object.__new__, object.__setattr__
