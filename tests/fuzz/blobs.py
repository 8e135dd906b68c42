"""Stored blobs: tensors and their merge, openings, reports, snapshots, segments, checkpoints.

A liar names what it has stored, so most cases carry a manifest that fits the bent bytes: what
lies behind the digest must stand by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from blake3 import blake3

from decodiloco.errors import BlobCorrupt
from decodiloco.learner import checkpoint
from decodiloco.merge.fragment import merge_fragment
from decodiloco.merge.gates import check_header
from decodiloco.merge.order import Abandoned, Contribution, MergeOrder
from decodiloco.merge.report import decode_report
from decodiloco.opening import decode_opening, encode_opening
from decodiloco.store.codecs import BLOCKS
from decodiloco.store.header import (
    ITEM_BYTES,
    LENGTH_BYTES,
    METADATA,
    Header,
    parse_header,
    place,
    render_header,
)
from decodiloco.store.keys import delta_key
from decodiloco.store.memory import MemoryStore
from decodiloco.store.tensors import encode_raw, encode_tensors, open_tensors, read_raw
from decodiloco.syncer.snapshot import decode_state, encode_state
from streams.chain import Chain
from streams.codec import unpack
from streams.errors import Failure, SegmentCorrupt
from streams.manifest import Manifest
from streams.segment import decode_segment, encode_segment
from tests.fuzz.bending import TEXTS, Bender, as_json, as_msgpack
from tests.fuzz.messages import desks
from tests.merge_orders import FragmentBench, filled, tensor

ENOUGH_BYTES, ENOUGH_DEPTH = 2**26, 20
TENSORS = (tensor("bias", ()), tensor("embedding", (4, 8), rule="mean"), tensor("weight", (9, 7)))
KEY = "trial/delta/b/3/f0-24-0011223344556677"


def bent_blob(bender: Bender, payload: bytes, codec: str) -> tuple[bytes, Manifest]:
    """A tensor blob with another header or other bytes, and what is said of it."""
    size = LENGTH_BYTES + int.from_bytes(payload[:LENGTH_BYTES], "little")
    start, rest = payload[:size], payload[size:]
    way = bender.chance.random()
    if way < 0.1 and codec in BLOCKS:
        start, rest = _bent_blocks(bender, start, rest)
    elif way < 0.3:
        start = _lying_header(bender, start)
    elif way < 0.7:
        start = _bent_header(bender, start[LENGTH_BYTES:])
    elif way < 0.8:
        start = with_length(bender.bytes(start[LENGTH_BYTES:]))
    elif way < 0.85:
        start = bender.bytes(start)
    if way > 0.8:
        rest = bender.bytes(rest)
    whole, known = start + rest, len(start)
    said: dict[str, Any] = {"bytes": len(whole), "digest": blake3(start).digest(), "codec": codec}
    if bender.chance.random() < 0.05:
        said["codec"] = bender.chance.choice(
            ("fp32", "bf16", "raw", "msgpack", "int8", "int4", "int2")
        )
    if bender.chance.random() < 0.05:
        said["bytes"] = bender.chance.choice((0, 1, 7, 8, known, len(whole) + 1, 2**53))
    if bender.chance.random() < 0.05:
        said["digest"] = blake3(payload[:size]).digest()
    return whole, Manifest(**said)


def _bent_blocks(bender: Bender, start: bytes, rest: bytes) -> tuple[bytes, bytes]:
    """Other scales and halves of bytes, under digests that fit them."""
    payload, header = bytearray(rest), parse_header(start, KEY)
    for _ in range(1 + bender.chance.randrange(3)):
        entry = bender.chance.choice(header.entries)
        at = bender.chance.choice((entry.start, entry.start + 1, entry.stop - 1))
        payload[at] = bender.chance.choice((0, 0x7B, 0x7F, 0x80, 0xC0, 0xFF))
    whole = bytes(payload)
    return render_header(replace(header, chunks=(blake3(whole).digest(),))), whole


def _lying_header(bender: Bender, start: bytes) -> bytes:
    """A header in canonical form, of other tensors or with other sums or digests."""
    header, draw = parse_header(start, KEY), bender.chance.randrange
    named = [(one.name, one.dtype, one.shape) for one in header.entries]
    chunks, squares = list(header.chunks), list(header.squares or [])
    at = draw(len(named))
    name, dtype, shape = named[at]
    match draw(8):
        case 0:
            named[at] = (bender.chance.choice(TEXTS), dtype, shape)
        case 1:
            named[at] = (name, dtype, (*shape[::-1], *([1] * draw(3))))
        case 2:
            named[at] = (name, bender.chance.choice(sorted(ITEM_BYTES)), shape)
        case 3:
            named[at] = (name, dtype, (2**30, 2**22)[: draw(3)])
        case 4:
            del named[at]
        case 5 if squares:
            squares[at] = bender.chance.choice((float("nan"), float("inf"), -1.0, 1e300, 0.5))
        case 6:
            chunks = bender.chance.choice(([], chunks * 2, [b"\0" * 32]))
        case _:
            bender.chance.shuffle(named)
    named = list({one[0]: one for one in named}.values())
    kept = tuple(squares) if header.squares is not None else None
    shapes = header.shapes
    if shapes is not None and draw(2):
        other = (shapes[0][::-1], (2**30, 2**22), (), (0,))
        shapes = bender.chance.choice(
            (None, shapes[1:], (*shapes[1:], bender.chance.choice(other)))
        )
    return render_header(Header(place(named), tuple(chunks), kept, shapes))


def _bent_header(bender: Bender, text: bytes) -> bytes:
    """The JSON bent as values, or the JSON that stands within it."""
    table = json.loads(text)
    if bender.chance.random() < 0.5:
        told = bender.tree(json.loads(table["__metadata__"][METADATA]))
        table["__metadata__"][METADATA] = as_json(told)
    else:
        table = bender.tree(table)
    return with_length(as_json(table).encode("utf-8", "surrogatepass"))


def with_length(text: bytes) -> bytes:
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


class Tensors:
    """A blob of tensors, read whole and in chunks."""

    name = "tensors"
    allowed: tuple[type[Failure], ...] = (BlobCorrupt,)

    def __init__(self) -> None:
        self._whole = {codec: _whole(codec) for codec in ("fp32", "bf16", "int8", "int4", "raw")}

    def read(self, bender: Bender) -> str:
        codec = bender.chance.choice(sorted(self._whole))
        payload, manifest = bent_blob(bender, self._whole[codec], codec)
        store = MemoryStore("fuzz")
        store.put(KEY, [payload])
        if manifest.codec == "raw":
            return f"{len(read_raw(store, KEY, manifest))} arrays"
        blob = open_tensors(store, KEY, manifest)
        reason = check_header(blob, TENSORS)
        assert reason is None or (reason.isascii() and reason.isprintable())
        for name in blob.names:
            elements = sum(len(chunk) for chunk in blob.chunks(name, 256))
            assert blob.read(name).size == elements
        return "a delta" if reason is None else f"left out: {reason.split(':')[0]}"


@cache
def _whole(codec: str) -> bytes:
    if codec == "raw":
        return b"".join(encode_raw(_checkpoint()).parts)
    squares = codec != "fp32"
    return b"".join(encode_tensors(filled(1, tensors=TENSORS), codec, squares=squares).parts)


class Deltas:
    """A bent delta beside an honest one in a merge: it is in, or it is left out, for a reason."""

    name = "deltas"
    allowed: tuple[type[Failure], ...] = ()

    def __init__(self) -> None:
        self._bench = FragmentBench("fuzz", TENSORS)
        honest = filled(1, tensors=TENSORS)
        self._orders: dict[str, MergeOrder] = {
            codec: self._bench.order(
                {"a": encode_tensors(honest, codec, squares=True)}, delta_codec=codec
            )
            for codec in ("bf16", "int8", "int4")
        }

    def read(self, bender: Bender) -> str:
        codec = bender.chance.choice(sorted(self._orders))
        honest = self._orders[codec]
        payload, manifest = bent_blob(bender, _whole(codec), codec)
        key = delta_key("trial", "b", 3, 0, 24, manifest)
        store = self._bench.store
        store.delete(key)
        store.put(key, [payload])
        contributions = (*honest.contributions, Contribution(12, "b", 999, 24, key, manifest))
        order = replace(honest, contributions=contributions)
        made = merge_fragment(order, store, sleep=lambda _: None)
        store.delete(key)
        assert not isinstance(made, Abandoned), "the honest one is a quorum"
        for one in made.left_out:
            assert one.position == 12 and one.reason.isascii() and one.reason.isprintable()
            return f"left out: {one.reason.split(':')[0]}"
        return "merged"


class Small:
    """Small blobs that are no tensors, each under a digest that fits."""

    name = "small"
    allowed: tuple[type[Failure], ...] = (BlobCorrupt, SegmentCorrupt)

    def __init__(self) -> None:
        self._kinds = _small_kinds()

    def read(self, bender: Bender) -> str:
        name, payload, decode = bender.chance.choice(self._kinds)
        if name == "segment" or bender.chance.random() < 0.15:
            bent = bender.bytes(payload)
        else:
            bent = as_msgpack(bender.tree(unpack(payload, ENOUGH_BYTES, ENOUGH_DEPTH)))
        try:
            decode(bent)
        except self.allowed as error:
            assert str(error).isprintable(), str(error)
            return f"{name}: {type(error).__name__}"
        return f"{name}: read"


def _small_kinds() -> list[tuple[str, bytes, Callable[[bytes], object]]]:
    """Name, sound bytes and reader of each."""
    desk = desks()[-1]
    opening = encode_opening(desk.opening)[0]
    bench = FragmentBench("fuzz-report", TENSORS)
    merged = merge_fragment(bench.order({"a": filled(1, tensors=TENSORS)}), bench.store)
    assert not isinstance(merged, Abandoned)
    before = Chain(desk.state.run, 0, b"")
    segment = encode_segment(before, desk.tape)
    return [
        ("opening", opening, lambda bent: decode_opening(bent, _named(bent))),
        ("report", b"".join(merged.report.parts), decode_report),
        ("snapshot", encode_state(desk.state), lambda bent: decode_state(desk.opening, bent)),
        ("segment", segment, lambda bent: decode_segment(bent, "1")),
    ]


def _named(payload: bytes) -> Manifest:
    return Manifest(bytes=len(payload), digest=blake3(payload).digest(), codec="msgpack")


class Checkpoints:
    """Another learner's checkpoint, from which a joiner would take its optimizer's moments."""

    name = "checkpoints"
    allowed: tuple[type[Failure], ...] = (BlobCorrupt,)

    def __init__(self) -> None:
        self._arrays = _checkpoint()

    def read(self, bender: Bender) -> str:
        arrays = dict(self._arrays)
        if bender.chance.random() < 0.8:
            notes = bender.tree(unpack(arrays["notes"].tobytes(), ENOUGH_BYTES, ENOUGH_DEPTH))
            arrays["notes"] = np.frombuffer(as_msgpack(notes), np.uint8)
        else:
            name = bender.chance.choice(sorted(arrays))
            shorter, empty = arrays[name].reshape(-1)[:-1], np.zeros((0,), np.float32)
            others = (shorter, empty, np.zeros((3, 2), np.int64), np.ones((), np.int64))
            arrays[name] = bender.chance.choice(others)
        model, optimizer = _trained()
        before = optimizer.state_dict()
        own = bender.chance.random() < 0.5
        try:
            fits = checkpoint.restore(optimizer, dict(model.named_parameters()), arrays, own)
        except BlobCorrupt:
            after = optimizer.state_dict()
            assert _same(before["state"], after["state"]), "a bad checkpoint changed the optimizer"
            return "BlobCorrupt"
        return "restored" if fits else "of another kind"


def _same(before: Any, after: Any) -> bool:
    return before.keys() == after.keys() and all(
        torch.equal(torch.as_tensor(before[i][key]), torch.as_tensor(after[i][key]))
        for i in before
        for key in before[i].keys() | after[i].keys()
    )


def _trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def _checkpoint() -> checkpoint.Raw:
    model, optimizer = _trained()
    return checkpoint.capture(optimizer, dict(model.named_parameters()))
