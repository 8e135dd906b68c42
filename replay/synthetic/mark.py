"""How a synthetic tape says that it is one. Pure."""

from __future__ import annotations

from streams.envelope import Envelope
from streams.events import SyncerTookOver

NAME = "synthetic"
FINGERPRINT = "synthetic: no byte named on this tape was made, but those of the opening"


def is_synthetic(envelope: Envelope) -> bool | None:
    """Whether this fact says that the tape is synthetic; None when it does not say."""
    event = envelope.event
    return event.fingerprint.startswith(NAME) if isinstance(event, SyncerTookOver) else None
