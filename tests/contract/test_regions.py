"""Hub and region by the files of deploy/geo, with keys and without: inboxes, copies, rights."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from decodiloco.config import Config, parse_config
from decodiloco.doctor_checks import measure_server
from decodiloco.keys import ACCOUNTS, Wanted, apply_keys, make_keys
from streams.address import with_files
from streams.codec import seal
from streams.envelope import Envelope, genesis
from streams.errors import PermissionDenied, StreamUnfit
from streams.events import HardshipInjected
from streams.jetstream import Connection, connect
from streams.link import Message, Silent
from streams.mirror import mirror_here
from streams.provision import provision
from streams.tape import Stored
from tests.builders import joined
from tests.contract.test_doors_tls import certify
from tests.geo.servers import GEO, GeoServer, free_ports

RUN = "geo"
REGIONS = ("hub", "east")
READ_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class Geo:
    """A hub and the region east, and how one gets in."""

    config: Config
    hub: GeoServer
    east: GeoServer
    keys: Path | None

    async def enter(self, server: GeoServer, name: str) -> Connection:
        key = str(self.keys / f"{name}.nk") if self.keys else None
        ca = str(self.hub.folder / "ca.pem") if self.keys else None
        return await connect(with_files(server.url, key, ca), name)

    async def open(self) -> None:
        operator = await self.enter(self.hub, "operator")
        await provision(operator, RUN, REGIONS)
        await operator.close()
        if self.keys:
            here = {"nats": self.hub.url, "nats_ca": str(self.hub.folder / "ca.pem")}
            told = self.config.model_copy(update={"here": self.config.here.model_copy(update=here)})
            await apply_keys(told, self.keys)


@contextmanager
def geo(folder: Path, is_secure: bool) -> Iterator[Geo]:
    tables = {"run": {"name": RUN, "regions": list(REGIONS)}}
    config = parse_config({**tables, "here": {"store": f"file://{folder}/blobs", "region": "hub"}})
    keys = folder / "keys" if is_secure else None
    ports = free_ports(3)
    listens = [f"127.0.0.1:{port}" for port in ports]
    confs = {name: GEO / f"{name}.conf" for name in ("hub", "region")}
    for place in ("hub", "east"):
        (folder / place).mkdir()
    if keys:
        wanted = [Wanted("learner", "a@east"), Wanted("learner", "h@hub"), Wanted("leaf", "east")]
        wanted.append(Wanted("merger", "m1"))
        make_keys(config, keys, wanted)
        certify(folder)
        for place, conf in (("hub", "hub"), ("east", "region")):
            for file in ("server.pem", "server.key", "ca.pem", f"keys/{ACCOUNTS}"):
                shutil.copy(folder / file, folder / place)
            confs[conf] = folder / place / "server.conf"
            shutil.copy(GEO / f"{conf}-secure.conf", confs[conf])
    hub = GeoServer(folder / "hub", confs["hub"], {"LISTEN": listens[0], "LEAF_LISTEN": listens[1]})
    leaf = ("tls" if keys else "nats") + f"://{listens[1]}"
    told = {"LISTEN": listens[2], "REGION": "east", "HUB_LEAF": leaf, "RUN": RUN}
    if keys:
        told["LEAF_SEED"] = (keys / "leaf-east.nk").read_text().splitlines()[-1]
    east = GeoServer(folder / "east", confs["region"], told)
    try:
        east.await_told("JetStream using domains")
        yield Geo(config, hub, east, keys)
    finally:
        east.stop()
        hub.stop()


@pytest.fixture(params=[False, True], ids=["open", "secure"], scope="module")
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Geo]:
    with geo(tmp_path_factory.mktemp("geo"), request.param) as made:
        asyncio.run(made.open())
        yield made


async def appended(tape_of: Connection, count: int) -> list[Envelope]:
    tape = tape_of.tape(RUN)
    last = await tape.read(await tape.last() - 1, 1) if await tape.last() else []
    previous, position = (last[0].digest, last[0].position) if last else (genesis(RUN), 0)
    batch = []
    for number in range(position + 1, position + 1 + count):
        word = HardshipInjected(
            speaker="t", life=1, said=number, hardship="none", target="t", seed=0
        )
        batch.append(seal(number, previous, 1, "s1", None, 0.0, word))
        previous = batch[-1].digest
    assert isinstance(await tape.append(batch), Stored)
    return batch


async def heard(tape: Connection, last: int, learner: str) -> list[Envelope]:
    found = []
    async with (
        asyncio.timeout(READ_SECONDS_MAX),
        aclosing(tape.tape(RUN).follow(0, learner)) as records,
    ):
        async for record in records:
            found.append(record)
            if record.position == last:
                return found
    raise AssertionError


def test_a_word_said_in_a_region_is_read_at_the_hub_and_the_tape_in_the_region(
    servers: Geo,
) -> None:
    async def story() -> None:
        syncer = await servers.enter(servers.hub, "syncer-s1")
        learner = await servers.enter(servers.east, "learner-a")
        sequence = await learner.inbox(RUN, "east").say(joined("a", region="east"))
        async with (
            asyncio.timeout(READ_SECONDS_MAX),
            aclosing(syncer.inbox(RUN, "east").follow(0)) as letters,
        ):
            async for letter in letters:
                assert (letter.source.inbox, letter.source.sequence) == ("east", sequence)
                assert (letter.speaker, letter.kind) == ("a", "learner_joined")
                break
        batch = await appended(syncer, 5)
        assert (await heard(learner, batch[-1].position, "a"))[-5:] == batch
        assert (await learner.tape(RUN).read(batch[0].position - 1, 5)) == batch
        for connection in (syncer, learner):
            await connection.close()

    asyncio.run(story())


def test_a_region_goes_on_hearing_and_being_heard_when_the_hub_restarts(servers: Geo) -> None:
    async def story() -> None:
        syncer = await servers.enter(servers.hub, "syncer-s1")
        learner = await servers.enter(servers.east, "learner-a")
        await appended(syncer, 3)
        await asyncio.to_thread(servers.hub.stop)
        sequence = await learner.inbox(RUN, "east").say(joined("a", region="east", nonce=b"2" * 16))
        servers.hub.start()
        async with (
            asyncio.timeout(READ_SECONDS_MAX),
            aclosing(syncer.inbox(RUN, "east").follow(0)) as letters,
        ):
            async for letter in letters:
                if letter.source.sequence == sequence:
                    break
        batch = await appended(syncer, 3)
        assert (await heard(learner, batch[-1].position, "a"))[-3:] == batch
        for connection in (syncer, learner):
            await connection.close()

    asyncio.run(story())


def test_nobody_writes_a_tape_by_a_regions_copy_of_it(servers: Geo) -> None:
    async def story() -> None:
        syncer = await servers.enter(servers.east, "syncer-s1")
        mirror = await mirror_here(syncer, RUN)
        assert mirror is not None and mirror.domain == "hub"
        with pytest.raises(StreamUnfit, match=r"is a region's copy: .* the hub's servers"):
            await appended(syncer, 1)
        await syncer.close()

    asyncio.run(story())


@pytest.mark.parametrize("servers", [True], ids=["secure"], indirect=True)
def test_a_regions_server_may_not_write_the_tape_nor_remove_it(servers: Geo) -> None:
    """With its key, as a thief would, and over its line, where its own operator is let in."""

    async def story() -> None:
        operator = await servers.enter(servers.hub, "operator")
        streams = (f"TAPE_{RUN}", f"IN_{RUN}_hub")
        before = [(await operator.wire.api(f"STREAM.INFO.{each}"))["state"] for each in streams]
        thief = await servers.enter(servers.hub, "leaf-east")
        inside = await servers.enter(servers.east, "operator")
        for connection in (thief, inside):
            link = await connection.wire.link()
            for subject in (
                f"tape.{RUN}.run.run_closed",
                f"in.{RUN}.hub.operator.run_closing",
                f"$JS.hub.API.STREAM.PURGE.TAPE_{RUN}",
                f"$JS.hub.API.STREAM.DELETE.TAPE_{RUN}",
            ):
                with pytest.raises((PermissionDenied, Silent)):
                    await link.request(Message(subject, b""), seconds=0.5)
        after = [(await operator.wire.api(f"STREAM.INFO.{each}"))["state"] for each in streams]
        assert [each["last_seq"] for each in after] == [each["last_seq"] for each in before]
        for connection in (operator, thief, inside):
            await connection.close()

    asyncio.run(story())


@pytest.mark.parametrize("servers", [True], ids=["secure"], indirect=True)
def test_what_a_merger_is_asked_and_its_heartbeat_stay_at_the_hub(servers: Geo) -> None:
    """A merger answers wherever its asker says, and who reads a question may answer it first."""
    asked, beats = f"merge.{RUN}.m1", f"pulse.{RUN}.merger.m1"
    passes = f"pulse.{RUN}.syncer.s1"

    async def story() -> None:
        syncer = await servers.enter(servers.hub, "syncer-s1")
        merger = await servers.enter(servers.hub, "merger-m1")
        thief = await servers.enter(servers.hub, "leaf-east")
        inside = await servers.enter(servers.east, "operator")
        links = [await one.wire.link() for one in (syncer, merger, thief, inside)]
        at_merger = await links[1].listen(asked, 10)
        at_syncer = await links[0].listen(f"pulse.{RUN}.*.*", 10)
        everything = [await link.listen(">", 100) for link in links[2:]]
        for link in links:
            await link.client.flush()
        for link in links[2:]:
            await link.publish(Message(asked, b""), f"tape.{RUN}.run.evil")
            await link.publish(Message(beats, b""))
            await link.client.flush()
        async with asyncio.timeout(READ_SECONDS_MAX):
            for ear in everything:  # what may pass does so, and after what may not
                subjects: set[str] = set()
                while passes not in subjects:
                    await links[0].publish(Message(asked, b"secret"), "_INBOX_syncer_s1.x.1")
                    await links[0].publish(Message(passes, b""))
                    while (message := await ear.take(0.1)) is not None:
                        if message.data or message.subject == passes:
                            subjects.add(message.subject)
                assert asked not in subjects
        while (message := await at_merger.take(0.2)) is not None:
            assert message.data == b"secret"
        while (message := await at_syncer.take(0.2)) is not None:
            assert message.subject != beats
        for connection in (syncer, merger, thief, inside):
            await connection.close()

    asyncio.run(story())


def test_a_copy_of_a_tape_that_was_lost_is_made_anew(servers: Geo) -> None:
    async def story() -> None:
        operator = await servers.enter(servers.hub, "operator")
        await appended(operator, 3)
        await operator.wire.api(f"STREAM.DELETE.TAPE_{RUN}")
        await provision(operator, RUN, REGIONS)
        east = await servers.enter(servers.east, "operator")
        assert await east.tape(RUN).last() == 0
        batch = await appended(operator, 2)
        assert await heard(east, 2, "a") == batch
        for connection in (operator, east):
            await connection.close()

    asyncio.run(story())


def test_doctor_tells_how_far_the_other_end_is(servers: Geo) -> None:
    ca = str(servers.hub.folder / "ca.pem") if servers.keys else None
    operators = str(servers.keys / "operator.nk") if servers.keys else None
    told = {}
    syncers = str(servers.keys / "syncer-s1.nk") if servers.keys else None
    for server, region, key in (
        (servers.hub, "hub", syncers),
        (servers.hub, "hub", operators),
        (servers.east, "east", operators),
    ):
        here = {"nats": server.url, "nats_key": key, "nats_ca": ca, "region": region}
        config = servers.config.model_copy(
            update={"here": servers.config.here.model_copy(update=here)}
        )
        told[region], times = asyncio.run(measure_server(config))
        assert 0 < times["link_seconds"] < 1
    assert "ms to east" in told["hub"] and "a copy of" not in told["hub"]
    assert "ms to hub" in told["east"] and "a copy of the tape of hub" in told["east"]
