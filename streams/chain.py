"""The hash chain of a tape, checked record by record: once, for every body of the tape. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from streams.envelope import Envelope, genesis
from streams.errors import ChainBroken


@dataclass(frozen=True, slots=True)
class Chain:
    """The end of a tape as far as it was checked: position and digest of the last record."""

    run: str
    position: int = 0
    digest: bytes = b""

    def then(self, envelope: Envelope) -> Chain:
        """The chain with one more record, or ChainBroken."""
        check_follows(envelope, self.position, self.tip)
        return Chain(self.run, envelope.position, envelope.digest)

    @property
    def tip(self) -> bytes:
        """What the next record must carry as `previous`."""
        return self.digest if self.position else genesis(self.run)


def check_follows(envelope: Envelope, position: int, tip: bytes) -> None:
    """Raises ChainBroken for a record that does not follow the one at a position, of this digest.

    Of a tape's first record `tip` is what `genesis` gives for its run.
    """
    if envelope.position != position + 1:
        raise ChainBroken(position + 1, f"a record numbered {envelope.position} stands there")
    if envelope.previous != tip:
        raise ChainBroken(envelope.position, "it does not carry the digest of the one before")
