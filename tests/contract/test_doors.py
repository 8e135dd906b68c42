"""What a key opens and what it does not, on a real server with the accounts that we generate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.errors import BadName, PermissionDenied
from streams.jetstream import Connection, connect
from streams.key_file import make_key
from streams.link import Message
from streams.permissions import Identity
from streams.pulse import Beat
from tests.builders import closing, joined, offered, opened, tape_of
from tests.contract.doors import Doors, shut
from tests.contract.nats_faults import raises_within

AT_ONCE_SECONDS = 1.0
TAPE, INBOX = "TAPE_shut", "IN_shut_home"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A run with three facts on its tape and one word in its inbox."""
    with shut(tmp_path_factory.mktemp("doors"), mergers=("m1",)) as made:
        asyncio.run(_begin(made))
        yield made


async def _begin(doors: Doors) -> None:
    await doors.open()
    async with doors.enter("syncer-s1", "learner-b") as (syncer, b):
        tape = syncer.tape(doors.run)
        await tape.append(tape_of([opened(doors.run), joined("a"), joined("b")], doors.run))
        await b.inbox(doors.run, "home").say(joined("b"))


async def standing(doors: Doors) -> tuple[object, ...]:
    """All that somebody could have changed: how streams and readers stand."""
    async with doors.enter("operator") as (operator,):
        ask = operator.wire.api
        streams = [
            await ask(f"STREAM.INFO.{name}", {"subjects_filter": ">"}) for name in (TAPE, INBOX)
        ]
        names = await ask("STREAM.NAMES")
        readers = [await ask(f"CONSUMER.NAMES.{name}") for name in (TAPE, INBOX)]
        reader = await ask(f"CONSUMER.INFO.{TAPE}.learner_b")
        told = [(each["config"], each["state"]) for each in streams]
        return (
            *told,
            names["streams"],
            *(each["consumers"] for each in readers),
            reader["config"],
            reader["delivered"],
        )


JETSTREAM = {
    "delete the tape": (f"STREAM.DELETE.{TAPE}", {}),
    "purge the tape": (f"STREAM.PURGE.{TAPE}", {}),
    "create a stream": ("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other.>"]}),
    "update the tape": (f"STREAM.UPDATE.{TAPE}", {"name": TAPE, "subjects": ["tape.shut.>"]}),
    "delete a fact": (f"STREAM.MSG.DELETE.{TAPE}", {"seq": 2}),
    "delete the inbox": (f"STREAM.DELETE.{INBOX}", {}),
    "read another's words": (f"STREAM.MSG.GET.{INBOX}", {"seq": 1}),
    "read another's words directly": (f"DIRECT.GET.{INBOX}", {"seq": 1}),
    "make a consumer of the inbox": (
        f"CONSUMER.CREATE.{INBOX}.a",
        {"stream_name": INBOX, "config": {"name": "a", "ack_policy": "none"}},
    ),
    "make a consumer of the tape": (
        f"CONSUMER.CREATE.{TAPE}.a",
        {"stream_name": TAPE, "config": {"name": "a", "ack_policy": "none"}},
    ),
    "read all of the tape": (f"STREAM.MSG.GET.{TAPE}", {"seq": 3}),
    "use another's reader": (f"CONSUMER.MSG.NEXT.{TAPE}.learner_b", {"batch": 1}),
    "set back another's reader": (f"CONSUMER.RESET.{TAPE}.learner_b", {"seq": 1}),
    "delete another's reader": (f"CONSUMER.DELETE.{TAPE}.learner_b", {}),
    "snapshot the tape": (f"STREAM.SNAPSHOT.{TAPE}", {"deliver_subject": "x"}),
    "list the streams": ("STREAM.NAMES", {}),
}

PUBLISH = {
    "speak as another": "in.shut.home.b.delta_offered",
    "speak in another region": "in.shut.far.a.delta_offered",
    "close the run": "in.shut.home.a.run_closing",
    "report an evaluation": "in.shut.home.a.evaluation_reported",
    "write the tape": "tape.shut.run.round_opened",
    "write its own part of the tape": "tape.shut.learner.a.delta_refused",
    "pose as the syncer": "pulse.shut.syncer.s1",
    "beat as another": "pulse.shut.learner.b",
    "beat as another merger": "pulse.shut.merger.m2",
    "ask a merger": "merge.shut.m1",
    "ask another merger": "merge.shut.m2",
    "acknowledge for another": f"$JS.ACK.{TAPE}.learner_b.1.1.1.1.0",
    "answer the syncer": "_INBOX_syncer_s1.x.1",
    "answer another": "_INBOX_learner_b.x.1",
    "speak under two ids": "in.shut.home.a.b.delta_offered",
    "speak under a star": "in.shut.home.*.delta_offered",
    "speak under all": "in.shut.home.>",
    "climb out of its subtree": "in.shut.home.../b.delta_offered",
    "speak in another run": "in.other.home.a.delta_offered",
    "ask the system": "$SYS.REQ.SERVER.PING",
}

LISTEN = {
    "hear another's replies": "_INBOX_learner_b.>",
    "hear the syncer's replies": "_INBOX_syncer_s1.>",
    "hear everybody's replies": "_INBOX.>",
    "hear the inbox": "in.shut.home.>",
    "hear the tape": "tape.shut.>",
    "hear everything": ">",
    "hear what another merger is asked": "merge.shut.m2",
    "hear what every merger is asked": "merge.shut.*",
    "hear what JetStream tells": "$JS.EVENT.>",
}


@pytest.mark.parametrize("who", ["learner-a", "viewer", "merger-m1"])
def test_what_is_forbidden_is_refused_and_named_at_once(doors: Doors, who: str) -> None:
    async def refused(connection: Connection, subject: str, payload: bytes) -> None:
        link = await connection.wire.link()
        named = rf"{who} may not publish to .* of run shut"
        with raises_within(AT_ONCE_SECONDS, PermissionDenied, named) as caught:
            await link.request(Message(subject, payload), seconds=5)
        assert f"publish to {subject.lower()}: its key is {doors.key(who)}" in str(caught.value)

    async def story() -> None:
        before = await standing(doors)
        for subject in PUBLISH.values():
            async with doors.enter(who) as (connection,):
                await refused(connection, subject, b"anything")
        async with doors.enter(who) as (connection,):
            for call, body in JETSTREAM.values():
                if who == "viewer" and call == f"STREAM.MSG.GET.{TAPE}":
                    continue
                for api in ("$JS.API", "api.shut"):
                    await refused(connection, f"{api}.{call}", json.dumps(body).encode())
            for subject in LISTEN.values():
                mailbox = await (await connection.wire.link()).listen(subject, 10)
                with raises_within(AT_ONCE_SECONDS, PermissionDenied, "may not subscribe to"):
                    await mailbox.take(5)
        assert await standing(doors) == before

    asyncio.run(story())


def test_a_viewer_says_nothing_at_all(doors: Doors) -> None:
    async def story() -> None:
        async with doors.enter("viewer") as (viewer,):
            inbox = viewer.inbox(doors.run, "home")
            for word in (closing(speaker="viewer"), joined("viewer"), offered("a")):
                with raises_within(AT_ONCE_SECONDS, PermissionDenied, "viewer may not publish"):
                    await inbox.say(word)
            with pytest.raises(PermissionDenied, match="write the tape of run shut"):
                await viewer.tape(doors.run).append(tape_of([opened(doors.run)], doors.run))
            pulse = viewer.pulse(doors.run)
            with raises_within(AT_ONCE_SECONDS, PermissionDenied, "viewer may not publish"):
                while True:  # a beat waits for nothing: the refusal shows at the next one
                    await pulse.beat(Beat("learner", "viewer", {}))
                    await asyncio.sleep(0.01)

    asyncio.run(story())


@pytest.mark.parametrize("who", ["learner-a", "viewer"])
def test_an_answer_does_not_go_where_its_asker_may_not_write(doors: Doors, who: str) -> None:
    """Permissions alone would let it: the server would write its answer onto the tape."""

    async def story() -> None:
        before = await standing(doors)
        allowed = ["api.shut.STREAM.INFO.TAPE_shut"]
        if who == "learner-a":
            allowed += [
                "pulse.shut.learner.a",
                "api.shut.CONSUMER.RESET.TAPE_shut.learner_a",
                "api.shut.CONSUMER.MSG.NEXT.TAPE_shut.learner_a",
            ]
        aims = [
            "tape.shut.run.evil",
            "in.shut.home.b.delta_offered",
            "pulse.shut.syncer.s1",
            "_INBOX_syncer_s1.x.1",
        ]
        async with doors.enter(who, "operator") as (connection, operator):
            heard = await (await operator.wire.link()).listen("pulse.shut.syncer.s1", 10)
            link = await connection.wire.link()
            for subject in allowed:
                for aim in aims:
                    await link.publish(Message(subject, b'{"batch": 1}'), aim)
            await connection.tape(doors.run).last()  # all of it has arrived
            assert await heard.take(0.2) is None
        assert await standing(doors) == before

    asyncio.run(story())


def test_who_has_no_key_or_an_unknown_one_is_told_so_at_once(doors: Doors, tmp_path: Path) -> None:
    async def story() -> None:
        url = doors.server.url
        with raises_within(AT_ONCE_SECONDS, PermissionDenied, "here.nats_key"):
            await connect(url, "test")
        strange = make_key(tmp_path, Identity("shut", "learner", "a", ("home",)))
        with raises_within(AT_ONCE_SECONDS, PermissionDenied, "does not know the key .*a.nk"):
            await connect(f"{url}?key={strange.path}", "test")
        with raises_within(AT_ONCE_SECONDS, PermissionDenied, "does not accept") as caught:
            await connect(url.replace("//", "//somebody:s3cret@"), "test")
        assert "s3cret" not in str(caught.value)

    asyncio.run(story())


def test_a_learner_sees_its_own_part_of_the_tape_and_no_other(doors: Doors) -> None:
    async def story() -> None:
        async with doors.enter("learner-a", "viewer") as (a, viewer):
            tape = a.tape(doors.run)
            assert [each.position for each in await tape.read(0)] == [1, 2]
            assert [each.position for each in await tape.read(0, 1)] == [1]
            assert [each.position for each in await tape.read(1, 1)] == [2]
            assert await tape.read(2, 1) == []
            assert await tape.last() == 3
            assert [each.position for each in await viewer.tape(doors.run).read(0)] == [1, 2, 3]

    asyncio.run(story())


def test_a_learner_hears_syncers_only_and_nobody_hears_what_it_may_not(doors: Doors) -> None:
    async def story() -> None:
        names = ("learner-a", "learner-b", "syncer-s1", "viewer", "evaluator")
        async with doors.enter(*names) as (a, b, syncer, viewer, evaluator):
            ears = {"a": a.pulse("shut").listen(), "viewer": viewer.pulse("shut").listen()}
            first = {name: asyncio.ensure_future(anext(ear)) for name, ear in ears.items()}
            async with asyncio.timeout(5):
                while not all(each.done() for each in first.values()):
                    await b.pulse("shut").beat(Beat("learner", "b", {}))
                    await asyncio.sleep(0.01)
                    await syncer.pulse("shut").beat(Beat("syncer", "s1", {}))
            assert first["a"].result().role == "syncer"
            assert first["viewer"].result().role in ("learner", "syncer")
            for ear in ears.values():
                await ear.aclose()
            deaf = evaluator.pulse("shut").listen()
            with raises_within(AT_ONCE_SECONDS, PermissionDenied, "may not subscribe to pulse"):
                await anext(deaf)

    asyncio.run(story())


@pytest.mark.parametrize(
    "id_", ["a.b", "*", ">", "../b", "a b", "", "A", "a\n", "a" * 49, "ä", "_a"]
)
def test_an_id_with_a_trick_in_it_never_becomes_a_subject(doors: Doors, id_: str) -> None:
    async def story() -> None:
        async with doors.enter("learner-a") as (a,):
            for attempt in (
                lambda: a.tape(id_),
                lambda: a.inbox(id_, "home"),
                lambda: a.inbox("shut", id_),
                lambda: a.pulse(id_),
            ):
                with pytest.raises(BadName):
                    attempt()
            with pytest.raises(BadName):
                await a.pulse("shut").beat(Beat("learner", id_, {}))

    asyncio.run(story())
