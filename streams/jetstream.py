"""What of a run can be reached over a NATS server: its tape, its inboxes, its pulse, its calls.

The way in; the bodies of the ports are in the files beside it.
"""

from __future__ import annotations

from streams.connection import Wire
from streams.jetstream_inbox import JetStreamInbox
from streams.jetstream_tape import JetStreamTape
from streams.nats_calls import NatsCalls
from streams.nats_pulse import NatsPulse
from streams.outside_tape import PolledTape, ReaderTape
from streams.permissions import Identity


async def connect(url: str, name: str) -> Connection:
    """Connects to a NATS server under a name that its operator will see.

    The address may name the file of our key, and of the server's CA (`streams.address`). Raises
    AskedWrongly for no NATS address and for files that are none, ServerUnreachable after a few
    seconds at most, and PermissionDenied. From then on the connection mends itself.
    """
    wire = Wire(url, name)
    await wire.open()
    return Connection(wire)


class Connection:
    """A connection to a NATS server, and what of a run can be reached over it.

    Belongs to the event loop it was made in.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.address = wire.address
        key = wire.door.key
        self.identity: Identity | None = key.identity if key else None

    def tape(self, run: str) -> JetStreamTape:
        """The tape of a run, read and written as far as our key allows."""
        identity = self.identity
        if identity is None or not identity.outside:
            return JetStreamTape(self.wire, run)
        if identity.role == "learner":
            return ReaderTape(self.wire, run, identity)
        return PolledTape(self.wire, run, identity)

    def inbox(self, run: str, region: str) -> JetStreamInbox:
        return JetStreamInbox(self.wire, run, region)

    def pulse(self, run: str) -> NatsPulse:
        return NatsPulse(self.wire, run)

    def calls(self, run: str) -> NatsCalls:
        return NatsCalls(self.wire, run)

    def healthy(self) -> bool:
        """Whether the server has answered a ping just now: only then does silence mean much."""
        return self.wire.healthy()

    async def close(self) -> None:
        """Ends the connection; whatever still follows over it raises Trouble."""
        await self.wire.close()
