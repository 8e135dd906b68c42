"""What a merger's key opens: it answers what a syncer asks it, and whoever else asks is refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager

import pytest

from streams.errors import PermissionDenied
from streams.jetstream import Connection
from streams.link import Link, Mailbox, Message
from streams.pulse import Beat
from streams.subjects import merge_subject
from tests.builders import joined, opened, tape_of
from tests.contract.doors import Doors, shut
from tests.contract.nats_faults import raises_within

AT_ONCE_SECONDS = 1.0
WAIT_SECONDS = 5.0
RUN = "shut"
ASKED = merge_subject(RUN, "m1")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with shut(tmp_path_factory.mktemp("merger"), mergers=("m1",)) as made:
        asyncio.run(made.open())
        yield made


@asynccontextmanager
async def listening(doors: Doors, asker: str) -> AsyncIterator[tuple[Link, Link, Mailbox]]:
    """The links of one who asks and of the merger, and what the merger is asked."""
    async with doors.enter(asker, "merger-m1") as (asking, merger):
        theirs = await merger.wire.link()
        mailbox = await theirs.listen(ASKED, 10)
        await theirs.client.flush()
        yield await asking.wire.link(), theirs, mailbox


async def refused(link: Link, subject: str) -> None:
    """Publishes, which waits for no answer, and sees the refusal come."""
    await link.publish(Message(subject, b"unasked"))
    named = f"may not publish to {subject.lower()}"
    with raises_within(AT_ONCE_SECONDS, PermissionDenied, named):
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                link.check_allowed(subject)
                await asyncio.sleep(0.01)


def test_a_merger_answers_a_syncer_once_for_each_question(doors: Doors) -> None:
    async def story() -> None:
        async with listening(doors, "syncer-s1") as (syncer, merger, mailbox):
            for question in (b"one", b"two"):
                answer = asyncio.ensure_future(syncer.request(Message(ASKED, question)))
                asked = await mailbox.take(WAIT_SECONDS)
                assert asked is not None and asked.data == question
                assert asked.reply.startswith("_INBOX_syncer_s1.")
                await merger.publish(Message(asked.reply, b"answer to " + question))
                assert (await answer).data == b"answer to " + question
                await refused(merger, asked.reply)

    asyncio.run(story())


def test_nobody_can_tell_beforehand_where_an_answer_will_go(doors: Doors) -> None:
    """A region's server hears other answers, and may publish to any inbox."""

    async def story() -> None:
        async with listening(doors, "syncer-s1") as (syncer, _, mailbox):
            tokens = set()
            for _ in range(3):
                asking = asyncio.ensure_future(syncer.request(Message(ASKED, b"")))
                asked = await mailbox.take(WAIT_SECONDS)
                assert asked is not None
                tokens.add(asked.reply.rpartition(".")[2])
                asking.cancel()
            assert len(tokens) == 3
            assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)

    asyncio.run(story())


def test_a_merger_publishes_nowhere_unasked(doors: Doors) -> None:
    async def story() -> None:
        async with doors.enter("merger-m1") as (merger,):
            link = await merger.wire.link()
            for subject in (
                "_INBOX_syncer_s1.x.1",
                "_INBOX_merger_m1.x.1",
                f"tape.{RUN}.run.round_opened",
                f"in.{RUN}.home.m1.learner_joined",
                ASKED,
            ):
                await refused(link, subject)
        async with doors.enter("merger-m1") as (merger,):
            tape, inbox = merger.tape(RUN), merger.inbox(RUN, "home")
            for act in (
                lambda: tape.append(tape_of([opened(RUN)], RUN)),
                lambda: tape.read(0),
                lambda: inbox.say(joined("m1")),
            ):
                with raises_within(AT_ONCE_SECONDS, PermissionDenied, "merger-m1 may not publish"):
                    await act()

    asyncio.run(story())


def test_who_asks_chooses_where_the_answer_goes_so_only_a_syncer_asks(doors: Doors) -> None:
    """A reply subject is a right to write there, the tape's too: nobody else may give it."""

    async def story() -> None:
        for asker in ("learner-a", "viewer", "evaluator"):
            async with listening(doors, asker) as (link, _, mailbox):
                ear = await link.listen(ASKED, 10)
                with raises_within(AT_ONCE_SECONDS, PermissionDenied, "may not subscribe to"):
                    await ear.take(WAIT_SECONDS)
            async with listening(doors, asker) as (link, _, mailbox):
                await link.publish(Message(ASKED, b""), f"tape.{RUN}.run.evil")
                await refused(link, ASKED)
                assert await mailbox.take(0.1) is None

    asyncio.run(story())


def test_a_merger_beats_under_its_own_name_and_hears_syncers_only(doors: Doors) -> None:
    async def story() -> None:
        async with doors.enter("syncer-s1", "learner-a", "merger-m1") as (syncer, a, merger):
            beats = {
                a: Beat("learner", "a", {}),
                merger: Beat("merger", "m1", {"jobs": 2}),
                syncer: Beat("syncer", "s1", {"fence": 1}),
            }

            async def heard_by(connection: Connection, last: Beat) -> list[Beat]:
                found = []
                async with aclosing(connection.pulse(RUN).listen()) as ear:
                    async for beat in ear:
                        found.append(beat)
                        if beat == last:
                            return found
                raise AssertionError("a pulse has no end")

            hearing = asyncio.gather(
                heard_by(merger, beats[syncer]), heard_by(syncer, beats[merger])
            )
            async with asyncio.timeout(WAIT_SECONDS):
                while not hearing.done():
                    for connection, beat in beats.items():
                        await connection.pulse(RUN).beat(beat)
                    await asyncio.sleep(0.01)
            assert set(map(str, (await hearing)[0])) == {str(beats[syncer])}
            with raises_within(AT_ONCE_SECONDS, PermissionDenied, "merger-m1 may not publish"):
                while True:  # a beat waits for nothing: the refusal shows at the next one
                    await merger.pulse(RUN).beat(beats[syncer])
                    await asyncio.sleep(0.01)
            ear = await (await merger.wire.link()).listen(f"pulse.{RUN}.*.*", 10)
            with raises_within(AT_ONCE_SECONDS, PermissionDenied, "may not subscribe to"):
                await ear.take(WAIT_SECONDS)

    asyncio.run(story())
