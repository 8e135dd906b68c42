"""A tape read from any position on, wherever it lies: the port, for who needs a stretch of it.

What is read here is not chained to what stands before it: the reader checks that. The bodies are a
tape file (`tape_index`), an archive (`archived_records`) and a live run (`live`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from streams.envelope import Envelope


class Records(Protocol):
    """One tape as it is now. `last` is the position of its newest record, 0 for an empty one."""

    last: int

    def read(self, after: int) -> Iterator[Envelope]:
        """The records that follow position `after`, to the last."""
        ...

    def back(self, kind: str, upto: int) -> Iterator[Envelope]:
        """The facts of one kind, backwards from position `upto` on."""
        ...

    def close(self) -> None:
        """Lets go of what it reads."""
        ...
