"""A lost tape brought back onto a server with keys: by the operator, with its learners' readers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import decodiloco
from decodiloco.archive.keeper import archive
from decodiloco.archive.restore import restore_run
from decodiloco.store.open_store import open_store
from decodiloco.training.gpt import build
from streams.errors import AskedWrongly, PermissionDenied, StreamExists, StreamMissing
from tests.contract.doors import Doors, shut

MODEL = {"layers": 1, "width": 8, "heads": 1, "context": 16}


async def archive_and_lose(doors: Doors) -> None:
    async with doors.enter("operator") as (operator,):
        store = open_store(doors.config.here.store)
        await archive(operator.tape(doors.run), store, asyncio.Event(), 0.0, once=True)
        await operator.wire.api(f"STREAM.DELETE.TAPE_{doors.run}")


async def read_by_a_learner(doors: Doors) -> int:
    async with doors.enter("learner-a") as (learner,):
        return len(await learner.tape(doors.run).read(0))


def test_a_tape_comes_back_with_its_learners_readers(tmp_path: Path) -> None:
    with shut(tmp_path, {"name": "back", "fragments": 2, "model": MODEL}) as doors:
        operator = doors.config_of("operator")
        decodiloco.open_run(operator, build(operator.run.model))
        asyncio.run(doors.open())
        asyncio.run(archive_and_lose(doors))
        without_key = doors.config_of("operator", nats_key=None)

        with pytest.raises(AskedWrongly, match="holds no keys yet"):
            list(restore_run(without_key, tmp_path, tmp_path / "kesy"))
        with pytest.raises(PermissionDenied):
            list(restore_run(without_key, tmp_path))
        with pytest.raises(StreamMissing, match=r"has no (tape|reader)"):
            asyncio.run(read_by_a_learner(doors))

        told = list(restore_run(without_key, tmp_path, doors.keys))

        assert told[0].startswith("run back is restored: positions 1 to 1, ")
        assert not any("readers" in line for line in told)
        assert asyncio.run(read_by_a_learner(doors)) == 1
        with pytest.raises(StreamExists):
            list(restore_run(without_key, tmp_path, doors.keys))
