"""What lies between the processes and their servers: lines that delay, cut, refuse and lose.

To NATS each process has a line of its own. To the store there is one proxy for all, and the
hardships that it puts on answers and requests are here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from tests.contract.nats_faults import Line
from tests.contract.proxy import Hardship, Refusal

SLOW_SECONDS = 0.3
REFUSALS = {
    "500": b"HTTP/1.1 500 Internal Server Error",
    "503": b"HTTP/1.1 503 Slow Down",
}
BODY = b"<Error><Code>%s</Code><Message>on purpose</Message></Error>"


class SlowLine(Line):
    """A line whose bytes come later, in order, both ways."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.delay_seconds = 0.0

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_server: bool
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if not (from_server and self.deaf):
                    writer.write(piece)
        writer.transport.abort()


def refusing(status: str, one_in: int = 2) -> Refusal:
    """Every so many-th request is refused without being carried out."""
    numbers = count()
    code = b"InternalError" if status == "500" else b"SlowDown"
    body = BODY % code
    head = REFUSALS[status] + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    def refuse(line: bytes) -> bytes | None:
        return head + body if next(numbers) % one_in == 0 else None

    return refuse


def slow(closed: threading.Event) -> Hardship:
    """Each piece of an answer comes late."""

    def wait(head: bytes, piece: bytes) -> bytes | None:
        closed.wait(SLOW_SECONDS)
        return piece

    return wait


def cut(one_in: int = 2) -> Hardship:
    """Of every so many-th answer only the first half arrives."""
    numbers = count()

    def halve(head: bytes, piece: bytes) -> bytes | None:
        if piece.startswith(b"HTTP/1.1 2"):
            return piece[: len(piece) // 2] if next(numbers) % one_in == 0 else piece
        return piece

    return halve


def lose_answers(one_in: int = 2) -> Hardship:
    """Every so many-th PUT is carried out, and nobody hears of it."""
    numbers = count()

    def lose(head: bytes, piece: bytes) -> bytes | None:
        if head.startswith(b"PUT") and piece.startswith(b"HTTP/1.1 2"):
            return None if next(numbers) % one_in == 0 else piece
        return piece

    return lose


def tampering(spoil: Callable[[str], None], times: int) -> Hardship:
    """`spoil` is called for deltas that were just stored, before their learner hears of it.

    So whatever it does is done before the delta is offered, and no merge has read it.
    """
    left = [times]
    lock = threading.Lock()

    def tamper(head: bytes, piece: bytes) -> bytes | None:
        if head.startswith(b"PUT") and b"/delta/" in head and piece.startswith(b"HTTP/1.1 2"):
            with lock:
                if left[0]:
                    left[0] -= 1
                    spoil(head.split()[1].decode().partition("?")[0])
        return piece

    return tamper
