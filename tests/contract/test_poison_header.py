"""The header that stops a replicated stream of the pinned nats-server for good.

One publish with a wrong `Nats-Expected-Last-Msg-Id` reaches the replicated log before anybody
compares it, and each replica that applies it then calls that a broken disk. (Servers 2.14.0 to
2.15.1; a stream of one replica compares first and is never harmed.) Hence our layout: who is not
trusted writes to an inbox of one replica, and has no way to the tape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.errors import PermissionDenied
from streams.jetstream import Connection, connect
from streams.link import Declined, Message, answer_of
from streams.provision import provision
from streams.subjects import inbox_stream, inbox_subject, tape_stream, tape_subject
from streams.tape import Outcome, Stored, Unknown
from tests.builders import joined, offered, opened, round_opened, tape_of
from tests.contract.doors import Doors, three_shut
from tests.contract.records import until
from tests.trio import Trio

RUN = "shut"
POISON = {"Nats-Expected-Last-Msg-Id": "nope"}
MISMATCH = 10070
FROZEN = "critical write error"
FACTS = tape_of([opened(RUN), joined("a"), joined("b"), round_opened()], RUN)


@pytest.fixture
def own_trio(tmp_path: Path) -> Iterator[Trio]:
    """Its streams do not outlive the test."""
    with Trio(tmp_path) as trio:
        yield trio


def test_the_pinned_server_still_has_the_bug_for_which_inboxes_have_one_replica(
    own_trio: Trio,
) -> None:
    """When this fails, the server was mended: inboxes may have three replicas (`provision`)."""

    async def story() -> list[Outcome]:
        connection = await connect(own_trio.url, "test")
        await provision(connection, RUN, ["home"], replicas=3)
        assert await connection.tape(RUN).append(FACTS[:2]) == Stored(2)
        assert await poisoned(connection, tape_subject(RUN, FACTS[2].event)) == MISMATCH
        outcomes = [await connection.tape(RUN).append(FACTS[2:])]
        for number in range(3):
            own_trio.kill(number)
        for number in range(3):
            own_trio.start(number)
        await until(lambda: _have_frozen(own_trio, 2))
        outcomes.append(await connection.tape(RUN).append(FACTS[2:]))
        await connection.close()
        return outcomes

    outcomes = asyncio.run(story())
    assert [type(one) for one in outcomes] == [Unknown, Unknown], "frozen, restarted or not"


async def _have_frozen(trio: Trio, lives: int) -> bool:
    """Whether a majority has met the header in so many lives; a third may wait for a leader."""
    return sum(trio.log(number).count(FROZEN) >= lives for number in range(3)) >= 2


def test_a_learner_can_send_the_header_to_its_inbox_only_and_harms_nobody(tmp_path: Path) -> None:
    async def story(doors: Doors) -> None:
        await doors.open()
        async with doors.enter("operator", "syncer-s1", "learner-a") as (operator, syncer, a):
            streams = [tape_stream(RUN), inbox_stream(RUN, "home")]
            found = [(await operator.wire.ask(f"STREAM.INFO.{name}"))["config"] for name in streams]
            assert [config["num_replicas"] for config in found] == [3, 1]
            assert await syncer.tape(RUN).append(FACTS[:2]) == Stored(2)
            word = offered("a")
            inbox = inbox_subject(RUN, "home", "a", word)
            assert await poisoned(a, inbox) == MISMATCH
            link = await a.wire.link()
            await link.publish(Message(inbox, b"", POISON), tape_subject(RUN, FACTS[2].event))
            assert await a.inbox(RUN, "home").say(word) == 1
            with pytest.raises(PermissionDenied):
                await poisoned(a, tape_subject(RUN, FACTS[2].event))
            assert await syncer.tape(RUN).append(FACTS[2:]) == Stored(4)
            await until(lambda: _ends_at(operator, 4))

    with three_shut(tmp_path) as doors:
        asyncio.run(story(doors))
        assert not any(FROZEN in doors.server.log(number) for number in range(3))


async def poisoned(connection: Connection, subject: str) -> int:
    """Publishes the header; the error code of the answer."""
    link = await connection.wire.link()
    with pytest.raises(Declined) as caught:
        answer_of(subject, await link.request(Message(subject, b"", POISON)))
    return caught.value.code


async def _ends_at(connection: Connection, position: int) -> bool:
    info = await connection.wire.ask(f"STREAM.INFO.{tape_stream(RUN)}")
    replicas = info["cluster"]["replicas"]
    return info["state"]["last_seq"] == position and all(one["current"] for one in replicas)
