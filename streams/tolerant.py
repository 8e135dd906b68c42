"""nats-py's client, made to outlive whatever a stranger may publish. Knows bytes, not streams.

Anybody may publish under any subject that a server takes, and a stream keeps it: a client that
dies of one message would die of it again and again.
"""

from __future__ import annotations

import re

from nats.aio.client import Client
from nats.protocol import parser

# nats-py splits a control line at any white space; the server does so at blanks and tabs only,
# so that a subject may hold a form feed.
_SUBJECT, _NUMBER, _GAP = rb"([^ \t\r\n]+)", rb"([0-9]+)", rb"[ \t]+"
_HEAD = _SUBJECT + _GAP + _SUBJECT + _GAP + rb"(" + _SUBJECT + _GAP + rb")?"
_STATUS = b"NATS/1.0 "
parser.MSG_RE = re.compile(rb"\AMSG" + _GAP + _HEAD + _NUMBER + rb"\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG" + _GAP + _HEAD + _NUMBER + _GAP + _NUMBER + rb"\r\n")


class TolerantClient(Client):
    """The client, to which a subject or a header that is no UTF-8 is not the end."""

    @property
    def domain(self) -> str:
        """The JetStream domain that the server says it is in; empty if it is in none."""
        return str(self._server_info.get("domain") or "")

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        readable = subject.decode(errors="replace").encode()
        await super()._process_msg(sid, readable, reply, data, headers)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Of a status only: a record's were for the server, and take long to parse."""
        if not headers or not headers.startswith(_STATUS):
            return None
        try:
            return await super()._process_headers(headers)
        except (ValueError, LookupError):
            return None
