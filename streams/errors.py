"""What can go wrong in the record. Three kinds, never mixed, each with its exit code.

    Failure
    ├── Corrupt              1  what was read cannot be what was written
    │   ├── Unreadable          bytes that are no event, envelope or word
    │   ├── ChainBroken         a tape whose facts do not follow from one another
    │   └── SegmentCorrupt      an archive whose segments are not what was archived
    ├── AskedWrongly         2  a name, address or setting that cannot be meant
    │   └── BadName
    └── Trouble              3  the world outside: servers, disks, networks
        ├── ServerUnreachable
        ├── StreamMissing
        ├── StreamExists
        ├── StreamUnfit         a stream whose settings would lose or alter facts
        └── PermissionDenied

A bug is none of these: it is an AssertionError. A refused offer is none either: it is a fact.
"""

from __future__ import annotations

from typing import Any


class Failure(Exception):
    """The root: a failure with a message for a person and an exit code for a script."""

    exit_code = 3

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes as it is: a constructor that words its message is not called again."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[Failure], args: tuple[Any, ...], told: dict[str, Any]) -> Failure:
    failure = kind.__new__(kind, *args)
    failure.__dict__.update(told)
    return failure


class Corrupt(Failure):
    """What was read cannot be what was written."""

    exit_code = 1


class Unreadable(Corrupt):
    """These bytes are no event, envelope or word."""


class ChainBroken(Corrupt):
    """A fact does not follow from the one before it."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"the tape breaks at position {position}: {why}")
        self.position = position


class SegmentCorrupt(Corrupt):
    """An archive with an altered segment, a gap or a fork; the message names the segment."""


class AskedWrongly(Failure):
    """A name, address or setting that cannot be meant."""

    exit_code = 2


class BadName(AskedWrongly):
    """An id that may not stand in a subject or a key."""


class Trouble(Failure):
    """The world outside does not answer as it should."""

    exit_code = 3


class ServerUnreachable(Trouble):
    """No NATS server answers at the address."""


class StreamMissing(Trouble):
    """The server answers, but it holds no such stream."""


class StreamExists(Trouble):
    """A stream of this name is there already, and it is not empty."""


class StreamUnfit(Trouble):
    """A stream is there, but its settings would lose or alter facts."""


class PermissionDenied(Trouble):
    """The server knows us and does not allow this."""
