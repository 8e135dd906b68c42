"""A TCP proxy that stands before an HTTP server and spoils what passes, as bad networks do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

CHUNK_BYTES = 256 * 1024

Hardship = Callable[[bytes, bytes], bytes | None]
"""Given the head of the request and a piece of its reply: what to pass on; None cuts the line."""


Refusal = Callable[[bytes], bytes | None]
"""Given the head of a request: what is answered in the server's place; None lets it through."""


def unharmed(head: bytes, piece: bytes) -> bytes | None:
    return piece


def let_through(head: bytes) -> bytes | None:
    return None


class Proxy:
    """Passes connections on to `endpoint`; `hardship` sees each piece of each reply.

    `refusal` sees each request before the server does. A server that is away costs those who
    connect their connection; when it has come back elsewhere, `turn_to` says where.
    """

    def __init__(self, endpoint: str) -> None:
        self.turn_to(endpoint)
        self.hardship: Hardship = unharmed
        self.refusal: Refusal = let_through
        self.closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def turn_to(self, endpoint: str) -> None:
        """New connections are passed on to this server."""
        parts = urlsplit(endpoint)
        self._target = (parts.hostname, parts.port)

    def _listen(self) -> None:
        while not self.closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                _cut(near)
                continue
            self._open += [near, far]
            heads = [b""]
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(near, far, heads), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket, heads: list[bytes]) -> None:
        try:
            while piece := near.recv(CHUNK_BYTES):
                line, _, _ = piece.partition(b"\r\n")
                if b" HTTP/1.1" in line:
                    heads[0] = line
                    refused = self.refusal(line)
                    if refused is not None:
                        near.sendall(refused)
                        break
                far.sendall(piece)
        except OSError:
            pass
        finally:
            _cut(near, far)

    def _replies(self, near: socket.socket, far: socket.socket, heads: list[bytes]) -> None:
        try:
            while piece := far.recv(CHUNK_BYTES):
                passed = self.hardship(heads[0], piece)
                if passed is None:
                    break
                near.sendall(passed)
        except OSError:
            pass
        finally:
            _cut(near, far)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closed.set()
        _cut(*self._open)


def _cut(*lines: socket.socket) -> None:
    for line in lines:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()
