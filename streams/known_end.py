"""The newest record that a reader or writer knows of a stream: it must still be there.

A record's digest commits to all before it. So whoever has read one notices a stream that was
emptied, cut, made again or altered: by that record at every new look, and by each record that
follows it directly. Knows the chain; neither servers nor what facts mean.
"""

from __future__ import annotations

from streams.envelope import Envelope, genesis
from streams.errors import ChainBroken

WHAT_NOW = (
    "nothing is written to it; stop the run's processes and see docs/how-to/restore.md "
    "(`decodiloco restore`)"
)


class KnownEnd:
    """Position and digest of the last record read; a digest not known yet is empty."""

    def __init__(self, run: str, stream: str, position: int, digest: bytes = b"") -> None:
        self.position = position
        self._stream = stream
        self._digest = digest if position else genesis(run)

    def take(self, record: Envelope) -> Envelope:
        """A record that was read next; filtered readers skip some. Raises ChainBroken."""
        follows = record.position == self.position + 1
        if follows and self._digest and record.previous != self._digest:
            raise altered(self._stream, self.position, self._digest, record.previous)
        self.position, self._digest = record.position, record.digest
        return record

    def compare(self, there: Envelope) -> None:
        """What stands at the position now. Raises ChainBroken if it is not what was read."""
        self._digest = self._digest or there.digest
        if there.digest != self._digest:
            raise altered(self._stream, self.position, self._digest, there.digest)


def altered(stream: str, position: int, expected: bytes, found: bytes) -> ChainBroken:
    """The stream was made again or altered: another record stands where one was read."""
    return ChainBroken(
        position,
        f"{stream} was made again or altered: expected the record {expected.hex()[:16]} there, "
        f"found {found.hex()[:16]}; {WHAT_NOW}",
    )


def shorter(stream: str, position: int, last: int) -> ChainBroken:
    """A record that was read is gone: the stream was cut, emptied, purged or made again."""
    return ChainBroken(
        position,
        f"{stream} has lost acknowledged records: expected one there, found none (its last is "
        f"{last}); {WHAT_NOW}",
    )
