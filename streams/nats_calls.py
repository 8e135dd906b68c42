"""Calls over NATS: plain requests and replies. Nothing is stored."""

from __future__ import annotations

import asyncio

from streams.calls import CALL_BYTES_MAX, Answerer
from streams.connection import Wire
from streams.link import Link, Message, Silent
from streams.subjects import checked, merge_subject
from streams.times import CALL_SECONDS

WAITING_MAX = 1000  # questions that may wait for an answerer; the oldest give way


class NatsCalls:
    """What the processes of a run ask each other, on a subject for each name."""

    def __init__(self, wire: Wire, run: str) -> None:
        self.run = checked(run, "run")
        self._wire = wire

    async def call(self, name: str, question: bytes) -> bytes | None:
        assert len(question) <= CALL_BYTES_MAX
        link = self._wire.link_now()
        if link is None:
            return None
        message = Message(merge_subject(self.run, name), question)
        try:
            return (await link.request(message, seconds=CALL_SECONDS)).data
        except Silent:
            return None

    async def answer(self, name: str, answerer: Answerer) -> None:
        subject = merge_subject(self.run, name)
        while True:
            try:
                await self._answer(await self._wire.link(None), subject, answerer)
            except Silent:
                await asyncio.sleep(0.02)

    async def _answer(self, link: Link, subject: str, answerer: Answerer) -> None:
        """Answers on one link, until it ends: Silent."""
        mailbox = await link.listen(subject, WAITING_MAX)
        try:
            while True:
                message = await mailbox.take(None)
                assert message is not None
                if message.reply and len(message.data) <= CALL_BYTES_MAX:
                    await link.publish(Message(message.reply, answerer(message.data)))
        finally:
            await link.hang_up(mailbox)
