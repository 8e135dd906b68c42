"""A merge that waits for bytes holds up no other: it gives its room away meanwhile."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from decodiloco.syncer.carrying import Room

LIMIT_SECONDS = 20.0


def test_who_waits_gives_its_room_to_another() -> None:
    room, inside, told = Room(1), Event(), []

    def first() -> None:
        with room:
            inside.set()
            with pytest.raises(asyncio.CancelledError):
                room.sleep(LIMIT_SECONDS)
            told.append("first")

    def second() -> None:
        assert inside.wait(LIMIT_SECONDS)
        with room:
            told.append("second")
        room.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result(LIMIT_SECONDS)
    assert told == ["second", "first"]


def test_who_computes_keeps_its_room() -> None:
    room, computing, go_on, told = Room(1), Event(), Event(), []

    def first() -> None:
        with room:
            computing.set()
            assert go_on.wait(LIMIT_SECONDS)
            told.append("first")

    def second() -> None:
        assert computing.wait(LIMIT_SECONDS)
        go_on.set()
        with room:
            told.append("second")

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result(LIMIT_SECONDS)
    assert told == ["first", "second"]
