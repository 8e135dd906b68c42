"""Calls as a port: a question to one process, by its name, and its answer. Off the record.

An answer may be lost and the question asked again, so whoever answers must bear to hear it twice.
This file knows who may be asked and how much, not how it travels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

CALL_BYTES_MAX = 1_000_000  # of a question and of an answer: a server takes 1 MiB in one message

Answerer = Callable[[bytes], bytes]


class Calls(Protocol):
    """What the processes of one run ask each other."""

    run: str

    async def call(self, name: str, question: bytes) -> bytes | None:
        """The answer of whoever bears this name; None when none came in time, or nobody does.

        Raises PermissionDenied, and Trouble where a server takes no question so long.
        """
        ...

    async def answer(self, name: str, answerer: Answerer) -> None:
        """Answers what is asked of this name, until cancelled. Rides over lost connections.

        The answerer is called in this event loop, and has to be quick. Raises PermissionDenied.
        """
        ...
