"""The inbox on JetStream: a word is kept when the server has it on disk, and kept once.

Knows subjects and sequences; what a word may mean is for admission to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, NoReturn

from blake3 import blake3

from streams.codec import encode_event
from streams.connection import Wire
from streams.envelope import Source
from streams.errors import ServerUnreachable, StreamMissing, StreamUnfit
from streams.events import Word, speaker_of
from streams.inbox import Letter
from streams.link import STREAM_NOT_FOUND, Declined, Message, Nobody, Silent, answer_of
from streams.pull import pull
from streams.subjects import checked, inbox_stream, inbox_subject
from streams.times import SAY_ATTEMPT_SECONDS, SAY_SECONDS


class JetStreamInbox:
    """The inbox of a region as a stream. Letters older than a week may be gone."""

    def __init__(self, wire: Wire, run: str, region: str) -> None:
        self.run = checked(run, "run")
        self.region = checked(region, "region")
        self._wire = wire
        self._stream = inbox_stream(run, region)

    async def life(self) -> str:
        """As the port says: it stands in the stream's metadata. Raises StreamMissing."""
        return life_of(await self._info())

    async def say(self, word: Word) -> int:
        """Leaves a word and waits until the server has it on disk; its sequence.

        Sends again, under the same id, for some seconds, also over a server's restart. Raises
        Trouble when the word may not have arrived: the caller keeps it and says it again.
        """
        subject = inbox_subject(self.run, self.region, speaker_of(word), word)
        return await self._leave(subject, encode_event(word))

    async def say_raw(self, speaker: str, kind: str, payload: bytes) -> int:
        """Leaves any bytes under an id and a kind, as a broken or hostile speaker might."""
        return await self._leave(f"in.{self.run}.{self.region}.{speaker}.{kind}", payload)

    async def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        """As the port says; letters that have grown too old are passed over.

        Raises StreamMissing, and StreamUnfit when the inbox was made again meanwhile, or ends
        before the cursor: its sequences then mean other letters.
        """
        life, sequence = "", after

        async def same_life() -> None:
            nonlocal life
            info = await self._info()
            now, last = life_of(info), int(info["state"]["last_seq"])
            life = life or now
            if last < sequence:
                raise StreamUnfit(
                    f"{self._stream} ends at {last}, before letter {sequence} that was read from "
                    "it: the server has lost letters; delete the stream and open the run again"
                )
            if now != life:
                raise StreamUnfit(
                    f"{self._stream} was made again (life {life}, now {now}): "
                    "follow it from its beginning"
                )

        try:
            pulling = pull(self._wire, self._stream, after, (), same_life, self.region)
            async with aclosing(pulling) as pulled:
                async for message in pulled:
                    speaker, kind = message.subject.split(".")[-2:]
                    sequence = message.sequence
                    source = Source(self.region, life, sequence)
                    yield Letter(source, speaker, kind, message.payload)
        except Declined as error:
            self._missing(error)

    async def close(self) -> None:
        """Nothing of its own is held open: the connection is the caller's."""

    async def _info(self) -> dict[str, Any]:
        try:
            return await self._wire.ask(f"STREAM.INFO.{self._stream}", region=self.region)
        except Declined as error:
            self._missing(error)

    async def _leave(self, subject: str, payload: bytes) -> int:
        """The id is made from who says what, so that the same word sent again is kept once."""
        words = blake3(subject.encode() + b"\0" + payload).hexdigest()[:32]
        message = Message(subject, payload, {"Nats-Msg-Id": words})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SAY_SECONDS
        pause_seconds = 0.02
        while True:
            left_seconds = max(0.05, deadline - loop.time())
            try:
                link = await self._wire.link(left_seconds)
                reply = await link.request(message, seconds=min(SAY_ATTEMPT_SECONDS, left_seconds))
                return int(answer_of(subject, reply)["seq"])
            except Nobody:
                with suppress(ServerUnreachable):
                    await self.life()  # raises StreamMissing if that is why
            except ServerUnreachable:
                pass
            if loop.time() > deadline:
                raise Silent(
                    f"run {self.run}: no answer from inbox {self._stream} at "
                    f"{self._wire.address} within {SAY_SECONDS:.0f} s; the word may be said again"
                )
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, 0.5)

    def _missing(self, error: Declined) -> NoReturn:
        if error.code != STREAM_NOT_FOUND:
            raise error
        raise StreamMissing(
            f"run {self.run} has no inbox {self.region!r} at {self._wire.address}: "
            "open the run with `decodiloco open`, or correct `region`"
        ) from None


def life_of(info: dict[str, Any]) -> str:
    """The life of an inbox, from its stream's description."""
    life = info["config"].get("metadata", {}).get("life")
    if not life:
        raise StreamUnfit(
            f"{info['config']['name']}: metadata.life is missing: it was not made by "
            "`decodiloco open`"
        )
    return str(life)
