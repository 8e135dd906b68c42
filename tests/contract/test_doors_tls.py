"""TLS by the lines of the how-to: who trusts the right authority gets in, and others are told."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.address import with_files
from streams.errors import AskedWrongly, ServerUnreachable
from streams.jetstream import connect
from streams.permissions import Identity
from streams.provision import provision, provision_readers
from tests.builders import joined
from tests.contract.doors import Doors, shut
from tests.tidy.house import text_of

LINES = re.compile(r"```sh\n(.*?openssl.*?)```", re.DOTALL)


def certify(folder: Path) -> None:
    """An authority and a server's certificate in a folder, by the lines of the how-to."""
    (lines,) = LINES.findall(text_of("docs/how-to/secure-a-run.md"))
    subprocess.run(["bash", "-euc", lines], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("tls")
    for place in (folder, folder / "stranger"):
        place.mkdir(exist_ok=True)
        certify(place)
    tls = f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key" }}\n'
    with shut(folder, doors=tls) as made:
        yield made


def test_who_trusts_the_servers_authority_speaks_over_tls(doors: Doors) -> None:
    async def story() -> None:
        ca = str(doors.keys.parent / "ca.pem")
        operator = await connect(with_files(doors.server.url, doors.key("operator"), ca), "op")
        await provision(operator, doors.run, ["home"])
        url = doors.server.url.replace("nats://127.0.0.1", "tls://localhost")
        learner = await connect(with_files(url, doors.key("learner-a"), ca), "learner-a")
        await provision_readers(operator, Identity(doors.run, "learner", "a", ("home",)))
        assert await learner.inbox(doors.run, "home").say(joined("a")) == 1
        assert await learner.tape(doors.run).read(0) == []
        for connection in (operator, learner):
            await connection.close()

    asyncio.run(story())


@pytest.mark.parametrize("ca", [None, "stranger/ca.pem"])
def test_who_does_not_trust_it_is_told_what_to_look_at(doors: Doors, ca: str | None) -> None:
    async def story() -> None:
        trusted = str(doors.keys.parent / ca) if ca else None
        with pytest.raises(ServerUnreachable, match=r"here\.nats_ca"):
            await connect(with_files(doors.server.url, doors.key("learner-a"), trusted), "test")

    asyncio.run(story())


@pytest.mark.parametrize("ca", ["nowhere.pem", "keys/accounts.conf"])
def test_a_file_that_is_no_authority_is_named(doors: Doors, ca: str) -> None:
    async def story() -> None:
        path = str(doors.keys.parent / ca)
        with pytest.raises(AskedWrongly, match=rf"CA file {path}: .*here.nats_ca"):
            await connect(with_files(doors.server.url, doors.key("learner-a"), path), "test")

    asyncio.run(story())
