"""Journals of those who publish: what they sent, and what they were told is stored.

The ports are wrapped, nothing is changed: each call goes through and is noted before and after.
A line is one write to the kernel, so it outlives a `kill -9` of whoever wrote it.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

from streams.envelope import Envelope
from streams.events import LearnerJoined, Word, speaker_of
from streams.inbox import Inbox, Letter
from streams.tape import BATCH_MAX, Outcome, Stored, Tape


class Journal:
    """Lines of JSON in a file that several lives of one seat append to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, **entry: Any) -> None:
        """One line, handed to the kernel before this returns."""
        os.write(self._descriptor, json.dumps(entry).encode() + b"\n")


def entries(path: Path, after_bytes: int = 0) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal, behind its first so many bytes."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(after_bytes)
        lines = file.read().split(b"\n")
    for line in lines[:-1]:
        entry: dict[str, Any] = json.loads(line)
        yield entry


class JournalledInbox:
    """An inbox whose acknowledgements are noted: which word, of which life, at which sequence."""

    def __init__(self, inbox: Inbox, journal: Journal) -> None:
        self.run, self.region = inbox.run, inbox.region
        self._inbox = inbox
        self._journal = journal

    async def life(self) -> str:
        return await self._inbox.life()

    async def say(self, word: Word) -> int:
        sequence = await self._inbox.say(word)
        self._journal.note(acknowledged=sequence, **identity_of(word))
        return sequence

    def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        return self._inbox.follow(after)

    async def close(self) -> None:
        await self._inbox.close()


class JournalledTape:
    """A tape whose appends are noted: the digests that were sent, and those that were stored."""

    def __init__(self, tape: Tape, journal: Journal) -> None:
        self.run = tape.run
        self._tape = tape
        self._journal = journal

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        records = [(envelope.digest.hex(), envelope.position) for envelope in batch]
        self._journal.note(attempted=records)
        outcome = await self._tape.append(batch)
        if isinstance(outcome, Stored):
            self._journal.note(acknowledged=records)
        return outcome

    async def read(self, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
        return await self._tape.read(after, limit)

    def follow(self, after: int, learner: str | None = None) -> AsyncGenerator[Envelope, None]:
        return self._tape.follow(after, learner)

    async def last(self) -> int:
        return await self._tape.last()

    async def close(self) -> None:
        await self._tape.close()


def identity_of(word: Word) -> dict[str, Any]:
    """What makes a word one word, however often it is sent."""
    if isinstance(word, LearnerJoined):
        nonce = word.nonce.hex()
        return {"kind": word.kind, "speaker": word.learner, "nonce": nonce, "seen": word.seen}
    life = getattr(word, "incarnation", None) or getattr(word, "life", 0)
    return {"kind": word.kind, "speaker": speaker_of(word), "life": life, "said": word.said}
