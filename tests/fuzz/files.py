"""Files that people and programs hand over: tapes, keys, rosters, configs; and addresses typed.

A tape is bent as bytes, or as records that chain again under a seal that fits: then the fold and
the table of facts must tell what is wrong with it.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from pathlib import Path

from blake3 import blake3

from decodiloco.config import load_config, parse_config
from decodiloco.errors import ConfigInvalid, RulesUnknown
from decodiloco.keys import ROSTER, Wanted, make_keys, read_roster
from decodiloco.visit import address_of
from replay.errors import Differs, PlaceUnknown, TapeCorrupt
from replay.place import find_place
from replay.refold import refold
from replay.show import Teller, Widths, plain
from replay.show import Wanted as Shown
from replay.tape_file import Header, Scan, encode_header
from streams.address import parse_address
from streams.codec import digest_of, encode_envelope, pack, unpack
from streams.envelope import genesis
from streams.errors import AskedWrongly, BadName, ChainBroken, Failure
from streams.framing import encode_record, encode_seal
from streams.key_file import read_key
from streams.subjects import checked
from tests.fuzz.bending import TEXTS, Bender, as_json, as_msgpack, as_toml, thawed
from tests.fuzz.messages import desks

ENOUGH_BYTES = 2**26


class Tapes:
    """A tape file, scanned, folded and shown."""

    name = "tapes"
    allowed: tuple[type[Failure], ...] = (TapeCorrupt, ChainBroken, Differs, RulesUnknown)

    def __init__(self) -> None:
        self._desk = desks()[-1]
        self._run = self._desk.state.run
        self._records = [encode_envelope(each) for each in self._desk.tape]
        self._whole = self._sealed(self._records)

    def read(self, bender: Bender) -> str:
        way = bender.chance.random()
        if way < 0.3:
            payload = bender.bytes(self._whole)
        else:
            payload = self._sealed(self._bent_records(bender, len(self._records)))
        scan = Scan(io.BytesIO(payload), Path("fuzz.tape"))
        teller = Teller(Shown(clocks=True))
        records = []
        try:
            for record in scan.records():
                records.append(record)
                for line in teller.lines([record]):
                    shown = plain(line, ("a", "b", "c"), Widths(cut=True))
                    assert shown.isprintable(), shown
            for _ in refold(records, self._desk.opening):
                pass
        except self.allowed as error:
            assert str(error).isprintable(), str(error)
            raise
        return f"{scan.ended} tape"

    def _bent_records(self, bender: Bender, count: int) -> list[bytes]:
        """One record bent, and those behind it made to follow it."""
        at = bender.chance.randrange(count)
        bent = list(self._records)
        fields = unpack(bent[at], ENOUGH_BYTES)
        if bender.chance.random() < 0.7:
            fields = [*thawed(fields)[:-1], bender.tree(fields[-1])]
        else:
            fields = bender.tree(fields)
        bent[at] = as_msgpack(fields)
        for place in range(at + 1, count):
            fields = thawed(unpack(bent[place], ENOUGH_BYTES))
            fields[2] = digest_of(bent[place - 1])
            bent[place] = pack(fields)
        return bent

    def _sealed(self, records: list[bytes]) -> bytes:
        body = encode_header(Header(self._run, "memory://trial"))
        body += b"".join(encode_record(each) for each in records if 0 < len(each) < 17_000)
        last = digest_of(records[-1]) if records else genesis(self._run)
        return body + encode_seal(len(records), last, blake3(body))


class Keys:
    """A key file or a roster."""

    name = "keys"
    allowed: tuple[type[Failure], ...] = (AskedWrongly, BadName)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        folder = Path(self._folder.name)
        config = parse_config({"run": {"name": "trial"}, "here": {"store": "memory://fuzz"}})
        make_keys(config, folder, [Wanted("learner", "a")])
        self._key = (folder / "learner-a.nk").read_bytes()
        self._roster = json.loads((folder / ROSTER).read_text())
        self._path = folder / "bent.nk"
        self._path.touch(0o600)

    def read(self, bender: Bender) -> str:
        try:
            return self._read(bender)
        except self.allowed as error:
            told, seed = str(error), self._key.decode().split("\n")[-2]
            assert seed not in told and told.isprintable(), told
            raise

    def _read(self, bender: Bender) -> str:
        if bender.chance.random() < 0.5:
            roster = as_json(bender.tree(self._roster)).encode("utf-8", "surrogatepass")
            roster = bender.bytes(roster) if bender.chance.random() < 0.3 else roster
            (self._path.parent / ROSTER).write_bytes(roster)
            return f"{len(read_roster(self._path.parent, 'trial'))} in the roster"
        lines = self._key.split(b"\n")
        at = bender.chance.randrange(len(lines))
        if bender.chance.random() < 0.4:
            lines[at] = lines[at].partition(b": ")[0] + b": " + _some_text(bender)
        elif bender.chance.random() < 0.2:
            raw = bender.bytes(base64.b32decode(lines[-2] + b"======"))
            lines[-2] = base64.b32encode(raw).rstrip(b"=")
        text = b"\n".join(lines)
        self._path.write_bytes(bender.bytes(text) if bender.chance.random() < 0.5 else text)
        key = read_key(str(self._path))
        assert key.seed not in repr(key) and key.seed not in str(key)
        checked(key.identity.run, "run"), checked(key.identity.id, "id")
        return f"a key of a {key.identity.role}"


def _some_text(bender: Bender) -> bytes:
    return bender.chance.choice(TEXTS).encode("utf-8", "surrogatepass")


class Configs:
    """A run.toml."""

    name = "configs"
    allowed: tuple[type[Failure], ...] = (ConfigInvalid,)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._path = Path(self._folder.name) / "run.toml"
        here = {"store": "file:///blobs", "nats": "nats://127.0.0.1:4222", "nats_key": "a.nk"}
        config = parse_config({"run": {"name": "trial"}, "here": here})
        self._tables = json.loads(config.model_dump_json(exclude_none=True))

    def read(self, bender: Bender) -> str:
        text = as_toml(bender.tree(self._tables), bender.chance).encode("utf-8", "surrogatepass")
        if bender.chance.random() < 0.3:
            text = bender.bytes(text)
        self._path.write_bytes(text)
        settings = ()
        if bender.chance.random() < 0.3:
            key = bender.chance.choice(("here.id", "name", "outer.lr", "\udcff", *TEXTS))
            value = bender.chance.choice(("\udcff", "9" * 5000, "0x" + "f" * 9000, "[" * 2000, ""))
            settings = (f"{key}={bender.chance.choice((value, bender.scalar()))}",)
        try:
            config = load_config(self._path, settings)
        except ConfigInvalid as error:
            assert str(error).replace("\n", "").isprintable(), str(error)
            raise
        checked(config.run.name, "run")
        return "a config"


class Addresses:
    """What somebody types as RUN or TAPE: a place, or one line that says what is wrong."""

    name = "addresses"
    allowed: tuple[type[Failure], ...] = (AskedWrongly, PlaceUnknown)
    sound = (
        "nats://127.0.0.1:4222/demo?key=keys/viewer.nk&ca=keys/ca.pem",
        "tls://user:s3cret@nats.example:4222/demo",
        "nats://a:1,nats://b:2/demo",
        "ws://[::1]:80/demo/",
        "runs/demo",
    )

    def read(self, bender: Bender) -> str:
        text = bender.chance.choice(self.sound)
        bent = bender.bytes(text.encode()).decode("utf-8", "replace")
        doors = (parse_address, find_place, address_of)
        door = bender.chance.choice(doors)
        try:
            door(bent)
        except self.allowed as error:
            is_whole = ":s3cret@" in bent and bent.count("s3cret") == 1
            assert not is_whole or "s3cret" not in str(error), str(error)
            return f"{door.__name__}: {type(error).__name__}"
        return f"{door.__name__}: a place"
