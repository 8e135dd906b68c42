"""An id is a path, a subject, a key and a file name: at every door a trick in one is refused.

Whoever comes in by a word, a config, a command, a key file or a tape finds the same rule.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from decodiloco import cli
from decodiloco.config import load_config, parse_config
from decodiloco.keys import ROSTER, Wanted, read_roster
from decodiloco.store import keys
from decodiloco.store.memory import MemoryStore
from replay.tape_file import MAGIC, VERSION, Scan
from streams import subjects
from streams.address import parse_run_address
from streams.codec import decode_word, pack
from streams.errors import Failure
from streams.events import EvaluationReported
from streams.framing import SEAL_BYTES, begin
from streams.permissions import Identity
from streams.segment import MAGIC as SEGMENT_MAGIC
from streams.segment import decode_segment
from tests.builders import closing, joined, manifest

TRICKS = (
    "..", "../b", "/etc/passwd", "a/b", "a\\b", "a.b", "a b", "*", ">", "$JS", "a*", "a\n", "\na",
    "a\x00", "A", "ä", "а", "-a", "_a", "a_b", "a%2fb", "~", "a;rm", "`a`", "$(a)", "a\r\nPUB x 1",
    "nul\u200b", "a" * 49, "",
)  # fmt: skip
BLOB = manifest("a blob", codec="bf16")


def tables(**run: object) -> dict[str, object]:
    return {"run": {"name": "trial", **run}, "here": {"store": "memory://x"}}


def here(**fields: object) -> dict[str, object]:
    return {"run": {"name": "trial"}, "here": {"store": "memory://x", **fields}}


def raw(word: object, **fields: object) -> object:
    return decode_word(pack([1, word.kind, {**word.model_dump(), **fields}]))


def rostered(name: str, folder: Path) -> object:
    each = {"public": "U", "role": "learner", "id": name, "regions": ["home"]}
    (folder / ROSTER).write_text(json.dumps({"run": "trial", "keys": [each]}))
    return read_roster(folder, "trial")


def set_at_the_door(name: str, folder: Path) -> object:
    path = folder / "run.toml"
    path.write_text('[run]\nname = "trial"\n[here]\nstore = "memory://x"\n')
    return load_config(path, [f"here.id={json.dumps(name)}"])


Door = Callable[[str, Path], object]
DOORS: dict[str, Door] = {
    "a run's name": lambda name, _: parse_config(tables(name=name)),
    "a region": lambda name, _: parse_config(tables(regions=["home", name])),
    "an id in a config": lambda name, _: parse_config(here(id=name)),
    "an id that is set": set_at_the_door,
    "a learner of a word": lambda name, _: raw(joined(), learner=name),
    "a region of a word": lambda name, _: raw(joined(), region=name),
    "a speaker of a word": lambda name, _: raw(closing(), speaker=name),
    "a tape": lambda name, _: subjects.tape_stream(name),
    "an inbox": lambda name, _: subjects.inbox_stream("trial", name),
    "a speaker's subject": lambda name, _: subjects.inbox_subject("trial", "home", name,
                                                                   EvaluationReported),
    "a follower": lambda name, _: subjects.tape_filters("trial", name),
    "a heartbeat": lambda name, _: subjects.pulse_subject("trial", "learner", name),
    "a run's opening": lambda name, _: keys.opening_key(name, BLOB),
    "a delta": lambda name, _: keys.delta_key("trial", name, 3, 0, 4, BLOB),
    "a checkpoint": lambda name, _: keys.checkpoint_key("trial", name, 4, BLOB),
    "a fragment": lambda name, _: keys.global_key(name, 0, 1, BLOB),
    "a blob": lambda name, _: MemoryStore("x").put(f"trial/{name}", [b""]),
    "an address": lambda name, _: parse_run_address(f"nats://127.0.0.1:1/{name}"),
    "a key that is wanted": lambda name, _: Wanted("learner", name).identity(
        parse_config(tables())),
    "an identity": lambda name, _: Identity("trial", "learner", name, ("home",)),
    "a roster": rostered,
    "a tape file": lambda name, folder: Scan(
        BytesIO(begin(MAGIC, VERSION, pack([name, "memory://x"]))), folder / "x.tape"),
    "a segment": lambda name, _: decode_segment(
        begin(SEGMENT_MAGIC, 1, pack([name, 0, bytes(32)])) + bytes(SEAL_BYTES), "1"),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_a_trick_in_a_name_is_refused_at_every_door(door: str, tmp_path: Path) -> None:
    for trick in TRICKS:
        if (door, trick) in PLACES:
            continue
        with pytest.raises(Failure):
            print(f"{trick!r} was taken: {DOORS[door](trick, tmp_path)!r}")
    assert {path.name for path in tmp_path.iterdir()} <= {ROSTER, "run.toml"}


PLACES = {
    # what means another, but a lawful thing there
    *(("a blob", trick) for trick in ("a/b", "a_b", "a" * 49)),
    ("an address", "a/b"),
}


@pytest.mark.parametrize("role", ["learner", "syncer", "evaluator"])
def test_an_id_with_a_trick_stops_a_process_before_it_does_anything(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[run]\nname = "trial"\n[here]\nstore = "file:///nowhere"\n')
    for trick in ("../b", "*", "a.b", "a\n", "A"):
        words = ["decodiloco", role, "--config", str(path), "--id", trick]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
    assert [each.name for each in tmp_path.iterdir()] == ["run.toml"]
