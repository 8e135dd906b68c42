"""Heartbeats over NATS. Nothing is stored, nothing is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from streams.connection import Wire
from streams.link import Message, Silent
from streams.permissions import pulses_for
from streams.pulse import LISTENER_BEATS_MAX, Beat, decode_beat, encode_beat
from streams.subjects import checked, pulse_subject


class NatsPulse:
    """A run's heartbeats as plain NATS messages."""

    def __init__(self, wire: Wire, run: str) -> None:
        self.run = checked(run, "run")
        self._wire = wire

    async def beat(self, beat: Beat) -> None:
        link = self._wire.link_now()
        if link is None:
            return
        subject = pulse_subject(self.run, beat.role, beat.speaker)
        link.check_allowed(subject)
        try:
            await link.publish(Message(subject, encode_beat(beat)))
        except Silent:
            return

    async def listen(self) -> AsyncGenerator[Beat, None]:
        key = self._wire.door.key
        subject = pulses_for(self.run, key.identity if key else None)
        while True:
            link = await self._wire.link(None)
            try:
                mailbox = await link.listen(subject, LISTENER_BEATS_MAX)
            except Silent:
                await asyncio.sleep(0.02)
                continue
            try:
                while True:
                    message = await mailbox.take(None)
                    assert message is not None
                    role, speaker = message.subject.split(".")[-2:]
                    if (beat := decode_beat(role, speaker, message.data)) is not None:
                        yield beat
            except Silent:
                continue
            finally:
                await link.hang_up(mailbox)

    async def close(self) -> None:
        """Nothing of its own is held open: the connection is the caller's."""
