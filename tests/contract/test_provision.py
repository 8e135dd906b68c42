"""Streams are made as facts need them, or refused with the setting that is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streams.errors import (
    AskedWrongly,
    PermissionDenied,
    ServerUnreachable,
    StreamMissing,
    StreamUnfit,
    Trouble,
)
from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.provision import inbox_settings, provision, runs, tape_settings
from tests.builders import joined, offered, opened, tape_of
from tests.contract.nats_faults import opened_run, raises_within, server_with_users
from tests.contract.records import new_run


def test_provisioning_again_changes_nothing(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            life = await connection.inbox(run, "home").life()
            await connection.tape(run).append(tape_of([opened(run)], run))
            await asyncio.gather(*(provision(connection, run, ["home", "far"]) for _ in range(4)))
            assert await connection.inbox(run, "home").life() == life
            assert await connection.inbox(run, "far").life() != life
            assert await connection.tape(run).last() == 1

    asyncio.run(story())


def test_the_runs_of_a_server_are_those_that_have_a_tape(nats_server: NatsServer) -> None:
    async def story() -> None:
        names = [new_run() for _ in range(3)]
        connection = await connect(nats_server.url, "test")
        before = await runs(connection)
        for name in names:
            await provision(connection, name, ["home"])
        assert await runs(connection) == sorted([*before, *names])
        await connection.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("storage", "memory"),
        ("discard", "old"),
        ("max_age", 3600_000_000_000),
        ("max_msgs", 1000),
        ("max_msg_size", 1000),
        ("deny_delete", False),
        ("deny_purge", False),
        ("allow_atomic", False),
        ("allow_rollup_hdrs", True),
        ("retention", "interest"),
        ("subjects", ["tape.other.>"]),
        ("metadata", {"schema": "9", "genesis": ""}),
    ],
)
def test_a_tape_that_would_lose_or_alter_facts_is_refused(
    nats_server: NatsServer, field: str, value: object
) -> None:
    async def story() -> None:
        run = new_run()
        settings: dict[str, Any] = {**tape_settings(run), field: value}
        if field == "allow_rollup_hdrs":
            settings["deny_purge"] = False  # the server allows only one of the two
        if field == "subjects":
            settings["subjects"] = [f"elsewhere.{run}.>"]
        connection = await connect(nats_server.url, "test")
        await connection.wire.api(f"STREAM.CREATE.TAPE_{run}", settings)
        named = "deny_purge" if field == "allow_rollup_hdrs" else field
        with pytest.raises(StreamUnfit, match=f"TAPE_{run} is not fit for facts: {named}"):
            await provision(connection, run, ["home"])
        await connection.wire.api(f"STREAM.DELETE.TAPE_{run}")
        await connection.close()

    asyncio.run(story())


def test_an_inbox_without_a_life_is_refused(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        connection = await connect(nats_server.url, "test")
        await connection.wire.api(f"STREAM.CREATE.IN_{run}_home", inbox_settings(run, "home"))
        with pytest.raises(StreamUnfit, match=r"metadata\.life is missing"):
            await provision(connection, run, ["home"])
        await connection.close()

    asyncio.run(story())


def test_a_stream_that_takes_a_runs_subjects_is_named(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        connection = await connect(nats_server.url, "test")
        other = {**tape_settings(run), "name": f"OTHER_{run}"}
        await connection.wire.api(f"STREAM.CREATE.OTHER_{run}", other)
        with pytest.raises(StreamUnfit, match=r"another stream already takes tape\."):
            await provision(connection, run, ["home"])
        await connection.wire.api(f"STREAM.DELETE.OTHER_{run}")
        await connection.close()

    asyncio.run(story())


def test_a_follower_of_an_inbox_that_was_made_again_is_told(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            inbox = connection.inbox(run, "home")
            await inbox.say(joined())
            letters = inbox.follow(0)
            assert (await anext(letters)).speaker == "a"
            stream = f"IN_{run}_home"
            new = {**inbox_settings(run, "home"), "metadata": {"schema": "1", "life": "second"}}
            await connection.wire.api(f"STREAM.DELETE.{stream}")
            await connection.wire.api(f"STREAM.CREATE.{stream}", new)
            with pytest.raises((StreamUnfit, StreamMissing), match=f"{stream}|no inbox"):
                await anext(letters)

    asyncio.run(story())


def test_a_run_that_was_never_opened_is_named_with_what_to_do(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        connection = await connect(nats_server.url, "test")
        tape, inbox = connection.tape(run), connection.inbox(run, "nowhere")
        batch = tape_of([opened(run), joined()], run)
        for asking in (
            tape.last(),
            tape.read(0),
            tape.read(0, 1),
            tape.append(batch),
            tape.append(batch[:1]),
            anext(tape.follow(0)),
        ):
            with raises_within(3, StreamMissing, f"run {run} has no tape.*`decodiloco open`"):
                await asking
        for asking in (inbox.life(), inbox.say(offered("a")), anext(inbox.follow(0))):
            with raises_within(3, StreamMissing, f"run {run} has no inbox 'nowhere'"):
                await asking
        await connection.close()

    asyncio.run(story())


def test_a_missing_server_is_named_within_a_few_seconds() -> None:
    async def story() -> None:
        with raises_within(
            5, ServerUnreachable, r"no NATS server answers at nats://127\.0\.0\.1:9 "
        ):
            await connect("nats://somebody:secret@127.0.0.1:9", "test")

    asyncio.run(story())


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:4222", "http://127.0.0.1:4222", "nats://", "nats://h:port", "nats://h/x"]
)
def test_what_is_no_address_is_asked_wrongly(url: str) -> None:
    with pytest.raises(AskedWrongly, match="write nats://host:port"):
        asyncio.run(connect(url, "test"))


def test_a_closed_connection_says_so_and_lets_its_followers_go(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            tape = connection.tape(run)
            waiting = asyncio.create_task(anext(tape.follow(0)))
            listening = asyncio.create_task(anext(connection.pulse(run).listen()))
            assert await tape.last() == 0
            await connection.close()
            for task in (waiting, listening):
                with pytest.raises(Trouble, match="was closed"):
                    await task
            with pytest.raises(Trouble, match="was closed"):
                await tape.last()
            assert not connection.healthy()

    asyncio.run(story())


def test_a_connection_may_be_closed_while_its_server_is_away(tmp_path: Path) -> None:
    async def story(server: NatsServer) -> None:
        run = new_run()
        async with opened_run(server.url, run) as connection:
            waiting = asyncio.create_task(anext(connection.tape(run).follow(0)))
            link = await connection.wire.link()
            server.stop()
            await link.ended.wait()
            await connection.close()
            with pytest.raises(Trouble, match="was closed"):
                await waiting

    server = NatsServer.start(tmp_path)
    try:
        asyncio.run(story(server))
    finally:
        server.stop()


def test_a_right_that_was_not_given_is_named_at_once(tmp_path: Path) -> None:
    limits = {
        "publish": {"deny": ["tape.>", "$JS.API.CONSUMER.>"]},
        "subscribe": {"allow": ["_INBOX.>"]},
    }
    users: list[dict[str, object]] = [
        {"user": "owner", "password": "x"},
        {"user": "reader", "password": "x", "permissions": limits},
    ]

    async def story(address: str) -> None:
        run = new_run()
        async with opened_run(f"nats://owner:x@{address}", run):
            reader = await connect(f"nats://reader:x@{address}", "reader-1")
            tape, inbox = reader.tape(run), reader.inbox(run, "home")
            batch = tape_of([opened(run), joined(), joined("b")], run)
            for asking in (tape.append(batch), tape.append(batch[:1])):
                with raises_within(
                    2, PermissionDenied, rf"reader-1 may not publish to tape\.{run}"
                ):
                    await asking
            with raises_within(
                2, PermissionDenied, r"reader-1 may not publish to \$js\.api\.consumer"
            ):
                await anext(tape.follow(0))
            assert await inbox.say(offered("a")) == 1
            await reader.close()
        with raises_within(2, PermissionDenied, "does not accept these credentials"):
            await connect(f"nats://owner:wrong@{address}", "test")

    with server_with_users(tmp_path, users) as address:
        asyncio.run(story(address))
