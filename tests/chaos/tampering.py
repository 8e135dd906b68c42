"""A finished run and ways to tamper with it: its blobs by kind, its tape file in pieces."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from decodiloco.opening import decode_opening
from decodiloco.store.keys import (
    global_key,
    key_of_checkpoint,
    key_of_offer,
    opening_key,
    outer_key,
    report_key,
    snapshot_key,
)
from replay.place import find_place
from replay.tape_file import MAGIC
from streams.codec import digest_of
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    FragmentMerged,
    MergeAbandoned,
    RunOpened,
    SnapshotStored,
)
from streams.framing import LENGTH, SEAL_BYTES, encode_seal

LIMIT_SECONDS = 120.0
SMALL_KINDS = ("opening", "report", "snapshot")


def replay(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a user has it: a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "replay.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def told_by(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON object on the last line of stdout."""
    assert "Traceback" not in done.stderr, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def linked_copy(folder: Path, to: Path) -> Path:
    """A copy of a run folder that shares its files; `put` in the copy leaves the first alone."""
    return Path(shutil.copytree(folder, to, copy_function=os.link))


def put(path: Path, data: bytes) -> None:
    """Puts other bytes in a file's place, without touching the bytes that others share."""
    path.unlink()
    path.write_bytes(data)


def changed(data: bytes, at: int, chance: random.Random) -> bytes:
    """The same bytes, but for one."""
    return data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]


def named_blobs(folder: Path) -> Mapping[str, list[str]]:
    """The keys of all blobs that a tape names and does not call broken, by kind."""
    tape = list(find_place(folder / "run.tape").envelopes())
    broken = {
        each.position
        for envelope in tape
        if isinstance(envelope.event, FragmentMerged | MergeAbandoned)
        for each in envelope.event.left_out
        if each.reason.startswith(("missing", "corrupt"))
    }
    kinds: dict[str, list[str]] = {}
    for envelope in tape:
        if envelope.position not in broken:
            for kind, key in _named_by(folder, envelope):
                kinds.setdefault(kind, []).append(key)
    return kinds


def _named_by(folder: Path, envelope: Envelope) -> Iterator[tuple[str, str]]:
    run = find_place(folder / "run.tape").run
    match envelope.event:
        case RunOpened() as event:
            key = opening_key(run, event.opening)
            yield "opening", key
            payload = (folder / "store" / key).read_bytes()
            for fragment, manifest in enumerate(decode_opening(payload, event.opening).fragments):
                yield "global", global_key(run, fragment, 0, manifest)
        case DeltaOffered() as event:
            yield "delta", key_of_offer(run, event)
        case FragmentMerged() as event:
            place = (run, event.fragment, event.version)
            yield "global", global_key(*place, event.parameters)
            yield "momentum", outer_key(*place, event.momentum)
            yield "report", report_key(run, event.round, event.report)
        case CheckpointStored() as event:
            yield "checkpoint", key_of_checkpoint(run, event)
        case SnapshotStored() as event:
            yield "snapshot", snapshot_key(run, event.position, event.manifest)
        case _:
            pass


def place_in(kind: str, data: bytes, part: str, chance: random.Random) -> int:
    """A random place in a blob: in its header or its payload, where it has both."""
    if kind in SMALL_KINDS:
        return chance.randrange(len(data))
    header = 8 + int.from_bytes(data[:8], "little")
    return chance.randrange(header) if part == "header" else chance.randrange(header, len(data))


@dataclass(frozen=True)
class Pieces:
    """A tape file taken apart; each record with its length before it."""

    header: bytes
    records: tuple[bytes, ...]
    seal: bytes

    @classmethod
    def of(cls, data: bytes) -> Pieces:
        """The pieces of a sealed tape file."""
        start = len(MAGIC) + 2
        at = start + LENGTH.size + LENGTH.unpack_from(data, start)[0]
        header, records = data[:at], []
        while length := LENGTH.unpack_from(data, at)[0]:
            records.append(data[at : at + LENGTH.size + length])
            at += LENGTH.size + length
        assert len(data) - at == SEAL_BYTES
        return cls(header, tuple(records), data[at:])

    def joined(self) -> bytes:
        """The file with these pieces, and with the seal as it was."""
        return b"".join((self.header, *self.records, self.seal))

    def sealed(self) -> bytes:
        """The file with a seal that fits these records, whatever they say of one another."""
        body = b"".join((self.header, *self.records))
        last = digest_of(self.records[-1][LENGTH.size :])
        return body + encode_seal(len(self.records), last, blake3(body))
