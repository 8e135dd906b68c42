"""The proof: the same machines run again from the record.

This package reads what the other two wrote and writes nothing that they read. Its two
functions for notebooks and scripts, `open_tape` and `state_at`, are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.place import open_tape
    from replay.state import state_at

__all__ = ["open_tape", "state_at"]


def __getattr__(name: str) -> Any:
    if name == "open_tape":
        from replay.place import open_tape

        return open_tape
    if name == "state_at":
        from replay.state import state_at

        return state_at
    raise AttributeError(f"module 'replay' has no attribute {name!r}")
