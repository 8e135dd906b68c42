"""Sizes of a run's streams, from a real server: of each stream that answers, and no fewer."""

from __future__ import annotations

import asyncio

from streams.errors import Trouble
from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.provision import provision
from streams.sizes import sizes_of
from streams.subjects import inbox_stream
from tests.builders import joined, opened, tape_of
from tests.contract.records import new_run


def test_a_stream_that_cannot_be_told_hides_no_other(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        untold: list[str] = []

        def hear(stream: str, error: Trouble) -> None:
            untold.append(f"{stream}: {error}")

        connection = await connect(nats_server.url, "test")
        try:
            await provision(connection, run, ["home", "far"])
            await connection.tape(run).append(tape_of([opened(run), joined("a")], run))
            whole = await sizes_of(connection.wire, run, ["home", "far"], hear)
            assert [one.region for one in whole] == [None, "home", "far"] and untold == []
            assert whole[0].messages == whole[0].last_sequence == 2 and whole[0].bytes > 0
            gone = inbox_stream(run, "home")
            await connection.wire.api(f"STREAM.DELETE.{gone}")
            rest = await sizes_of(connection.wire, run, ["home", "far"], hear)
            assert rest == (whole[0], whole[2])
            assert len(untold) == 1 and untold[0].startswith(f"{gone}: ")
        finally:
            await connection.close()

    asyncio.run(story())
