"""How a synthetic tape says that it is one. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from streams.envelope import Envelope
from streams.events import SyncerTookOver

NAME = "synthetic"
FINGERPRINT = "synthetic: no byte named on this tape was made, but those of the opening"


@dataclass(slots=True)
class Marks:
    """What the syncers of a tape say of it. One of them that made something makes it a real one.

    A learner may call itself what it likes.
    """

    said: list[bool] = field(default_factory=list)

    @property
    def is_synthetic(self) -> bool:
        """Whether every syncer so far said that nothing was made."""
        return bool(self.said) and all(self.said)

    def note(self, envelope: Envelope) -> None:
        """Takes one record in."""
        mark = is_synthetic(envelope)
        if mark is not None:
            self.said.append(mark)


def is_synthetic(envelope: Envelope) -> bool | None:
    """Whether this fact says that the tape is synthetic; None when it does not say."""
    event = envelope.event
    return event.fingerprint.startswith(NAME) if isinstance(event, SyncerTookOver) else None
