"""What can go wrong in a replay, drawn on top of the trees of the record and the method.

Failure
├── Corrupt                 1
│   ├── TapeCorrupt            a tape file whose bytes are not what was written, and where
│   ├── Differs                a replay that comes to something else than the tape says
│   │   └── BlobGone               for want of a blob that the tape names
│   └── InvariantBroken        a run that is not what every run must be
├── AskedWrongly            2
│   ├── PlaceUnknown           neither a run, a server's address nor a tape file
│   └── NotReached             a position, step or version that the tape does not hold
└── Trouble                 3
    ├── PlaceSilent            a run that is known, but cannot be read from anywhere
    ├── BeyondHorizon          bytes that a horizon has let go of
    ├── TapeFileBusy           another process is recording into this file
    └── Unwritable             the disk does not take the file
"""

from __future__ import annotations

from streams.errors import AskedWrongly, Corrupt, Trouble


class TapeCorrupt(Corrupt):
    """A tape file whose bytes are not what was written; `position` is the record in question."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"the tape breaks at position {position}: {why}")
        self.position = position


class Differs(Corrupt):
    """A replay that comes to something else than the tape says.

    `position` is the fact in question, `key` the blob, where there is one.
    """

    def __init__(self, what: str, position: int | None = None, key: str | None = None) -> None:
        where = "" if position is None else f"position {position}: "
        super().__init__(f"{where}{what}" + ("" if key is None else f" ({key})"))
        self.what = what
        self.position = position
        self.key = key


class BlobGone(Differs):
    """A replay that cannot come to what the tape says, for want of a blob: lost, or let go of."""


class InvariantBroken(Corrupt):
    """A run that is not what every run must be: which invariant, where, and how."""

    def __init__(self, invariant: str, what: str, position: int | None = None) -> None:
        where = "" if position is None else f"position {position}: "
        super().__init__(f"{where}{what} (invariant broken: {invariant})")
        self.invariant = invariant
        self.what = what
        self.position = position


class PlaceUnknown(AskedWrongly):
    """Neither a run, a server's address nor a tape file."""


class NotReached(AskedWrongly):
    """A position, step or version that the tape does not hold."""


class PlaceSilent(Trouble):
    """A run that is known, but cannot be read from anywhere."""


class BeyondHorizon(Trouble):
    """Bytes that a horizon has let go of."""


class TapeFileBusy(Trouble):
    """Another process is recording into this file."""


class Unwritable(Trouble):
    """The disk does not take the file."""
