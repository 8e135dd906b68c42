"""Every limit on sizes, and who refuses what is one over: the reference page and its test.

`reach(n)` hands over a thing of size n. At the limit nothing may complain of its size; one over,
the error must be typed and say so.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from decodiloco.config import CONFIG_BYTES_MAX, load_config, parse_config
from decodiloco.errors import BlobMissing
from decodiloco.keys import Wanted, make_keys
from decodiloco.store.blobs import KEY_BYTES_MAX, checked_key
from decodiloco.store.header import (
    DIMENSIONS_MAX,
    HEADER_BYTES_MAX,
    LENGTH_BYTES,
    TENSORS_MAX,
    Header,
    parse_header,
    place,
    render_header,
)
from decodiloco.store.memory import MemoryStore
from decodiloco.store.small import SMALL_BYTES_MAX, read_small
from decodiloco.store.tensors import open_tensors
from decodiloco.syncer import offer_gates
from decodiloco.syncer.admission import LEARNERS_MAX, SPEAKERS_MAX, Admitted, Unreadable
from decodiloco.syncer.refusals import SUBJECTS_MAX
from decodiloco.times import REFUSALS_SECONDS
from replay.errors import TapeCorrupt
from replay.tape_file import HEADER_BYTES_MAX as TAPE_HEADER_BYTES_MAX
from replay.tape_file import MAGIC, VERSION, Scan, encode_header
from replay.tape_file import Header as TapeHeader
from streams import errors
from streams.codec import DEPTH_MAX, ENVELOPE_BYTES_MAX, EVENT_BYTES_MAX, decode_word, pack, unpack
from streams.events import DeltaRefused, Word
from streams.framing import LENGTH, begin
from streams.frozen import replace
from streams.key_file import KEY_BYTES_MAX as KEY_FILE_BYTES_MAX
from streams.key_file import read_key
from streams.manifest import Manifest
from streams.parts import CURSOR_BYTES_MAX, FRAGMENTS_MAX
from streams.pulse import BEAT_BYTES_MAX, decode_beat
from streams.subjects import checked
from tests.builders import adopted, closing, hardship, joined, offered
from tests.desk import ELEMENTS, Desk

KEY = "trial/delta/b/3/f0-24-0011223344556677"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many `unit`, as the constant `source` says; `told` is what one over is told."""

    what: str
    most: int
    unit: str
    source: str
    told: str
    reach: Callable[[int], object]
    step: int = 1


class TooMuch(errors.AskedWrongly):
    """Raised here where a limit answers with a verdict instead of an error."""


def said(word: Word, **fields: Any) -> Word:
    """A word with other fields, through its bytes."""
    return decode_word(pack([1, word.kind, {**word.model_dump(), **fields}]))


def _beat(size: int) -> None:
    payload = b"\x81\xa1w\xda" + (size - 6).to_bytes(2, "big") + b"x" * (size - 6)
    if decode_beat("learner", "a", payload) is None:
        raise TooMuch(f"a beat of {size} bytes is passed over")


def _offer_bytes(more: int) -> None:
    desk = _open_desk()
    named = Manifest(bytes=2 * ELEMENTS + more, digest=bytes(32), codec="bf16")
    desk.train("a")
    verdict = desk.say(desk.offer("a", 1, manifest=named))
    assert isinstance(verdict, Admitted)
    if isinstance(verdict.event, DeltaRefused):
        raise TooMuch(verdict.event.reason)


def _joins(count: int) -> None:
    desk = _open_desk()
    learner = desk.state.learners["a"]
    desk.state = replace(desk.state, learners={f"x{n}": learner for n in range(count - 1)})
    _verdict(desk, joined("new", layout_digest=desk.opening.layout.digest, seen=3))


def _speaks(count: int) -> None:
    desk = _open_desk()
    desk.state = replace(desk.state, speakers={f"x{n}": (1, 1) for n in range(count - 1)})
    _verdict(desk, closing(speaker="new"))


def _verdict(desk: Desk, word: Word) -> None:
    verdict = desk.say(word)
    if isinstance(verdict, Unreadable):
        raise TooMuch(verdict.reason)


def _open_desk() -> Desk:
    desk = Desk()
    desk.join("a"), desk.open_round()
    return desk


def header_of(*tensors: tuple[str, tuple[int, ...]]) -> bytes:
    """The header of a blob of these tensors without a byte of them."""
    named = [(name, "U8", shape) for name, shape in tensors]
    return render_header(Header(place(named), (), None))


def _header_bytes(size: int) -> None:
    start = header_of(("n" * (size - len(header_of(("", (0,))))), (0,)))
    assert len(start) == size
    store = MemoryStore("limits")
    store.put(KEY, [start])
    named = Manifest(bytes=size, digest=blake3(start).digest(), codec="raw")
    open_tensors(store, KEY, named)


def _tensors(count: int) -> None:
    parse_header(header_of(*((f"{n:06}", (0,)) for n in range(count))), KEY)


def _small(size: int) -> None:
    try:
        read_small(MemoryStore("limits"), KEY, Manifest(bytes=size, digest=bytes(32), codec="raw"))
    except BlobMissing:
        return  # it was looked for


def _tape_frame(size: int) -> None:
    start = encode_header(TapeHeader("trial", "memory://trial"))
    file = io.BytesIO(start + LENGTH.pack(size) + b"\xc1" * size)
    with pytest.raises(TapeCorrupt) as caught:  # it is read, and is no record
        list(Scan(file, Path("limits.tape")).records())
    if "cannot be read" not in str(caught.value):
        raise caught.value


def _tape_header(size: int) -> None:
    body = pack(["trial", "x" * (size - 10)])
    assert len(body) == size
    Scan(io.BytesIO(begin(MAGIC, VERSION, body)), Path("limits.tape"))


def _key_file(size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = parse_config({"run": {"name": "trial"}, "here": {"store": "memory://x"}})
        make_keys(config, Path(folder), [Wanted("learner", "a")])
        path = Path(folder) / "learner-a.nk"
        held = path.read_bytes()
        path.write_bytes(b"#" * (size - len(held)) + b"\n" + held.rstrip())
        read_key(str(path))


def _config_file(size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        text = b'[run]\nname = "trial"\n[here]\nstore = "memory://x"\n#'
        path.write_bytes(text + b"x" * (size - len(text)))
        load_config(path)


def _run(**fields: Any) -> None:
    parse_config({"run": {"name": "trial", **fields}, "here": {"store": "memory://x"}})


def _nested(depth: int) -> None:
    value: object = 0
    for _ in range(depth):
        value = [value]
    unpack(pack(value), 1000)


LIMITS: tuple[Limit, ...] = (
    Limit("a word, and the event in a fact", EVENT_BYTES_MAX, "bytes", "EVENT_BYTES_MAX",
          "of 16384 allowed", lambda n: _sized(n, EVENT_BYTES_MAX)),
    Limit("a fact with what stands around it", ENVELOPE_BYTES_MAX, "bytes", "ENVELOPE_BYTES_MAX",
          "of 17408 allowed", lambda n: _sized(n, ENVELOPE_BYTES_MAX)),
    Limit("lists and maps within one another", DEPTH_MAX, "levels", "DEPTH_MAX", "too deep",
          _nested),
    Limit("the name of a run, region, learner, syncer", 48, "characters", "NAME_RULE", "1 to 48",
          lambda n: checked("a" * n, "learner")),
    Limit("a count in a word", 2**53, "", "Count", "less than or equal",
          lambda n: said(offered("a"), seen=n)),
    Limit("a cursor", CURSOR_BYTES_MAX, "bytes", "CURSOR_BYTES_MAX", "at most 1024",
          lambda n: said(offered("a"), cursor=b"x" * n)),
    Limit("a fingerprint", 400, "characters", "LearnerJoined", "at most 400",
          lambda n: said(joined("a"), fingerprint="x" * n)),
    Limit("a hardship, or its target", 64, "characters", "HardshipInjected", "at most 64",
          lambda n: said(hardship(), target="x" * n)),
    Limit("adoptions in a word", 64, "", "DeltaOffered", "at most 64",
          lambda n: said(offered("a"), adopted=[adopted().model_dump()] * n)),
    Limit("versions in a word", FRAGMENTS_MAX, "", "FRAGMENTS_MAX", "at most 1024",
          lambda n: said(joined("a"), versions=[0] * n)),
    Limit("fragments of a run", FRAGMENTS_MAX, "", "FRAGMENTS_MAX", "less than or equal",
          lambda n: _run(fragments=n)),
    Limit("regions of a run", 16, "", "Run.regions", "at most 16",
          lambda n: _run(regions=["home", *(f"r{each}" for each in range(n - 1))])),
    Limit("learner ids in a run's life", LEARNERS_MAX, "", "LEARNERS_MAX", "take the id of one",
          _joins),
    Limit("evaluators, operators and injectors in a run's life", SPEAKERS_MAX, "",
          "SPEAKERS_MAX", "has heard 1024 speakers", _speaks),
    Limit("a heartbeat", BEAT_BYTES_MAX, "bytes", "BEAT_BYTES_MAX", "passed over", _beat),
    Limit("a delta, beyond its fragment's elements", offer_gates.HEADER_BYTES_MAX, "bytes",
          "offer_gates.HEADER_BYTES_MAX", "^size ", _offer_bytes),
    Limit("the header of a blob of tensors", HEADER_BYTES_MAX, "bytes", "HEADER_BYTES_MAX",
          "a header of", _header_bytes, LENGTH_BYTES),
    Limit("tensors in a blob", TENSORS_MAX, "", "TENSORS_MAX", "too many tensors", _tensors),
    Limit("dimensions of a tensor", DIMENSIONS_MAX, "", "DIMENSIONS_MAX", "shape of",
          lambda n: parse_header(header_of(("a", (0,) * n)), KEY)),
    Limit("one dimension of a tensor", 2**53 - 1, "elements", "header", "shape of",
          lambda n: parse_header(header_of(("a", (n, 0))), KEY)),
    Limit("an opening, report, snapshot", SMALL_BYTES_MAX, "bytes", "SMALL_BYTES_MAX",
          "no small blob is", _small),
    Limit("the key of a blob", KEY_BYTES_MAX, "characters", "KEY_BYTES_MAX", "characters at most",
          lambda n: checked_key("a" * n)),
    Limit("a record of a tape file", ENVELOPE_BYTES_MAX, "bytes", "ENVELOPE_BYTES_MAX",
          "which none has", _tape_frame),
    Limit("the header of a tape file", TAPE_HEADER_BYTES_MAX, "bytes", "HEADER_BYTES_MAX",
          "cannot be read", _tape_header),
    Limit("a key file", KEY_FILE_BYTES_MAX, "bytes", "KEY_BYTES_MAX", "is no key|broken key",
          _key_file),
    Limit("a run.toml", CONFIG_BYTES_MAX, "bytes", "CONFIG_BYTES_MAX", "no config has",
          _config_file),
)  # fmt: skip


def _sized(size: int, most: int) -> None:
    unpack(b"\xc5" + (size - 3).to_bytes(2, "big") + b"x" * (size - 3), most)


def limits_page() -> str:
    """The table of all limits, for people."""
    lines = [
        "What is one over is refused with a typed error; a test reaches each limit and passes it.",
        "Small limits on single fields stand with them in [Events](events.md) and",
        "[Config](config.md), waits in [Times](times.md).\n",
        "| what | at most | constant |",
        "|---|---|---|",
    ]
    for one in LIMITS:
        lines.append(f"| {one.what} | {one.most:,} {one.unit}".rstrip() + f" | `{one.source}` |")
    lines += [
        "",
        "Streams take no message that is longer than a word or a fact with its headers. What is no",
        f"word is recorded at most once for each inbox subject and {REFUSALS_SECONDS:.0f} s, of",
        f"{SUBJECTS_MAX:,} subjects; the rest of an inbox is counted as one. A stranger's text is",
        "shown with an escape for each character that does more than print.",
    ]
    return "\n".join(lines) + "\n"
