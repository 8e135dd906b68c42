"""Tensor blobs: one digest commits to everything, and every piece is checked by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.merge.exact import square_sum
from decodiloco.store.codecs import decode, encode
from decodiloco.store.header import CHUNK_BYTES, parse_header, render_header
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import (
    Encoded,
    encode_raw,
    encode_tensors,
    encode_with_loss,
    open_tensors,
    read_raw,
    read_tensors,
)
from streams.manifest import Manifest
from tests.merge_orders import filled, numbers

SMALL = filled(1)


def stored(name: str, blob: Encoded) -> Any:
    store = open_store(f"memory://tensors-{name}")
    store.put("blob", blob.parts)
    return store


def whole(blob: Encoded) -> bytes:
    return b"".join(bytes(part) for part in blob.parts)


class Bytes:
    """A store of one blob."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.reads: list[tuple[int, int]] = []

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> bytes:
        self.reads.append((start, stop))
        return self.payload[start:stop]


def named(payload: bytes, codec: str = "fp32") -> Manifest:
    """A manifest that a liar could write: the digest of whatever stands for the header."""
    size = 8 + int.from_bytes(payload[:8], "little")
    return Manifest(bytes=len(payload), digest=blake3(payload[:size]).digest(), codec=codec)


def test_tensors_come_back_sorted_by_name_and_bit_for_bit() -> None:
    blob = encode_tensors(dict(reversed(SMALL.items())), "fp32")
    again = read_tensors(stored("fp32", blob), "blob", blob.manifest)
    assert list(again) == sorted(SMALL)
    for name, array in SMALL.items():
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()
        assert again[name].flags.writeable


def test_bf16_comes_back_as_its_codec_decodes_it() -> None:
    blob = encode_tensors(SMALL, "bf16")
    again = read_tensors(stored("bf16", blob), "blob", blob.manifest)
    for name, array in SMALL.items():
        assert again[name].tobytes() == decode(encode(array, "bf16"), "bf16").tobytes()


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_blocks_come_back_whole_and_in_ranges(codec: str) -> None:
    large = {**SMALL, "ragged": numbers(2 * CHUNK_BYTES + 12_345, 4).reshape(1, -1)}
    blob = encode_tensors(large, codec, squares=True)
    opened = open_tensors(stored(codec, blob), "blob", blob.manifest)
    for name, array in large.items():
        values = decode(encode(array, codec), codec, array.size)
        assert opened.shape(name) == array.shape
        assert opened.squares(name) == square_sum(values)
        assert opened.read(name).tobytes() == values.tobytes()
        chunks = list(opened.chunks(name, 65_536))
        assert np.concatenate([*chunks, values[:0]]).tobytes() == values.tobytes()


def test_what_coding_lost_is_told_with_the_blob() -> None:
    blob, lost = encode_with_loss(SMALL, "int4")
    again = read_tensors(stored("lost", blob), "blob", blob.manifest)
    assert whole(blob) == whole(encode_tensors(SMALL, "int4", squares=True))
    for name, array in SMALL.items():
        assert lost[name].tobytes() == (array - again[name]).reshape(-1).tobytes()


IN_BLOCKS = {
    "no shapes": lambda header: replace(header, shapes=None),
    "a shape of more": lambda header: replace(header, shapes=((64, 64), *header.shapes[1:])),
    "a shape of less": lambda header: replace(header, shapes=((0,), *header.shapes[1:])),
    "too few shapes": lambda header: replace(header, shapes=header.shapes[1:]),
    "a size below zero": lambda header: replace(header, shapes=((-1,), *header.shapes[1:])),
}


@pytest.mark.parametrize("change", IN_BLOCKS.values(), ids=IN_BLOCKS)
def test_blocks_whose_shapes_do_not_fit_their_bytes_are_refused(change: Any) -> None:
    blob = encode_tensors(SMALL, "int4", squares=True)
    header = parse_header(bytes(blob.parts[0]), "blob")
    payload = b"".join((render_header(change(header)), *map(bytes, blob.parts[1:])))
    with pytest.raises(BlobCorrupt, match="blob blob: its"):
        open_tensors(Bytes(payload), "blob", named(payload, "int4"))


def test_a_strange_scale_is_named_with_its_blob_and_tensor() -> None:
    blob = encode_tensors(SMALL, "int8", squares=True)
    header = parse_header(bytes(blob.parts[0]), "blob")
    rest = bytearray(b"".join(map(bytes, blob.parts[1:])))
    rest[header.entries[1].start : header.entries[1].start + 2] = b"\x80\xff"
    bent = render_header(replace(header, chunks=(blake3(bytes(rest)).digest(),))) + bytes(rest)
    opened = open_tensors(Bytes(bent), "blob", named(bent, "int8"))
    name = header.entries[1].name
    with pytest.raises(BlobCorrupt, match=f"blob blob: {name}: a block's scale is 0xff80"):
        opened.read(name)


def test_a_blob_is_a_safetensors_file() -> None:
    again = safetensors.numpy.load(whole(encode_tensors(SMALL, "fp32", squares=True)))
    assert sorted(again) == sorted(SMALL)
    for name, array in SMALL.items():
        assert again[name].tobytes() == array.tobytes()


def test_the_same_tensors_give_the_same_bytes() -> None:
    other_order = {name: SMALL[name].copy() for name in sorted(SMALL, reverse=True)}
    assert whole(encode_tensors(SMALL, "bf16", squares=True)) == whole(
        encode_tensors(other_order, "bf16", squares=True)
    )


def test_a_delta_carries_the_sums_of_squares_of_what_will_be_decoded() -> None:
    blob = encode_tensors(SMALL, "bf16", squares=True)
    opened = open_tensors(stored("squares", blob), "blob", blob.manifest)
    for name, array in SMALL.items():
        assert opened.squares(name) == square_sum(decode(encode(array, "bf16"), "bf16"))
    bare = encode_tensors(SMALL, "bf16")
    assert open_tensors(stored("bare", bare), "blob", bare.manifest).squares("bias") is None


def large_tensors() -> dict[str, np.ndarray]:
    return {"a": numbers(3, 1), "b": numbers(CHUNK_BYTES // 4 + 5, 2), "c": numbers(70_000, 3)}


def test_chunks_are_the_tensor_in_order_across_the_pieces_of_the_payload() -> None:
    large = large_tensors()
    blob = encode_tensors(large, "fp32")
    opened = open_tensors(stored("large", blob), "blob", blob.manifest)
    for name, array in large.items():
        chunks = list(opened.chunks(name, 100_000))
        assert {len(chunk) for chunk in chunks[:-1]} <= {100_000}
        assert np.concatenate(chunks).tobytes() == array.tobytes()


def test_a_pass_in_order_reads_each_piece_once() -> None:
    large = large_tensors()
    blob = encode_tensors(large, "fp32")
    store = Bytes(whole(blob))
    opened = open_tensors(store, "blob", blob.manifest)
    for name in opened.names:
        for _ in opened.chunks(name, 65_536):
            pass
    header_bytes = len(bytes(blob.parts[0]))
    assert store.reads[1:] == [
        (header_bytes, header_bytes + CHUNK_BYTES),
        (header_bytes + CHUNK_BYTES, blob.manifest.bytes),
    ]


@pytest.mark.parametrize("place", [0, 9, 40, -1])
def test_a_flipped_bit_anywhere_is_found(place: int) -> None:
    blob = encode_tensors(SMALL, "bf16", squares=True)
    payload = bytearray(whole(blob))
    payload[place] ^= 1
    with pytest.raises(BlobCorrupt, match="blob"):
        read_tensors(Bytes(bytes(payload)), "blob", blob.manifest)


@pytest.mark.parametrize("what", ["header", "chunk"])
def test_a_piece_that_came_broken_is_read_again_past_any_cache(what: str) -> None:
    blob = encode_tensors(SMALL, "fp32")
    broken_start = 0 if what == "header" else len(bytes(blob.parts[0]))

    class Cached(Bytes):
        """A store behind a cache with a broken entry."""

        def read(self, key: str, start: int, stop: int, anew: bool = False) -> bytes:
            good = super().read(key, start, stop)
            return bytes(len(good)) if start == broken_start and not anew else good

    store = Cached(whole(blob))
    again = read_tensors(store, "blob", blob.manifest)
    assert again["attention"].tobytes() == SMALL["attention"].tobytes()
    assert len(store.reads) == 3


def test_a_missing_blob_says_so() -> None:
    blob = encode_tensors(SMALL, "fp32")
    with pytest.raises(BlobMissing):
        open_tensors(open_store("memory://tensors-empty"), "nowhere", blob.manifest)


def test_a_blob_named_with_another_codec_is_refused() -> None:
    payload = whole(encode_tensors(SMALL, "fp32"))
    for codec in ("bf16", "raw2", "msgpack"):
        with pytest.raises(BlobCorrupt, match="not coded in"):
            open_tensors(Bytes(payload), "blob", named(payload, codec))


def forged(change: Any, squares: bool = True) -> bytes:
    """A blob whose header was changed by hand, rendered as we would, and honestly named."""
    payload = whole(encode_tensors(SMALL, "fp32", squares=squares))
    size = 8 + int.from_bytes(payload[:8], "little")
    table = json.loads(payload[8:size])
    told = json.loads(table["__metadata__"]["decodiloco"])
    change(table, told)
    table["__metadata__"]["decodiloco"] = json.dumps(told, separators=(",", ":"))
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload[size:]


FORGERIES: dict[str, Any] = {
    "a hole": lambda table, told: table["bias"].update(data_offsets=[133_644, 133_648]),
    "a negative shape": lambda table, told: table["bias"].update(shape=[-1, -1]),
    "a shape of floats": lambda table, told: table["bias"].update(shape=[1.0]),
    "a shape of truth": lambda table, told: table["bias"].update(shape=[True]),
    "a huge shape": lambda table, told: table["bias"].update(shape=[2**60]),
    "very many dimensions": lambda table, told: table["bias"].update(shape=[1] * 99),
    "an unknown dtype": lambda table, told: table["bias"].update(dtype="F8"),
    "another dtype": lambda table, told: table["bias"].update(dtype="BF16"),
    "a word too many": lambda table, told: table["bias"].update(note="hello"),
    "a second metadata key": lambda table, told: table["__metadata__"].update(other="x"),
    "no chunk digests": lambda table, told: told.update(chunks=[]),
    "a short digest": lambda table, told: told.update(chunks=["00"]),
    "a chunk that is no text": lambda table, told: told.update(chunks=[7]),
    "too few squares": lambda table, told: told.update(squares=["0x0.0p+0"]),
    "squares that are no text": lambda table, told: told.update(squares=[1.0, 2.0, 3.0]),
    "squares in another form": lambda table, told: told.update(squares=["1", "1", "1"]),
    "another format": lambda table, told: told.update(format=2),
    "no format": lambda table, told: told.pop("format"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_header_is_refused(forgery: str) -> None:
    payload = forged(FORGERIES[forgery])
    with pytest.raises(BlobCorrupt, match="blob"):
        read_tensors(Bytes(payload), "blob", named(payload))


def test_an_unforged_header_passes_the_forger() -> None:
    payload = forged(lambda table, told: None)
    assert payload == whole(encode_tensors(SMALL, "fp32", squares=True))


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_no_header_and_no_crash(payload: bytes) -> None:
    length = len(payload).to_bytes(8, "little")
    with pytest.raises(BlobCorrupt):
        parse_header(length + payload, "blob")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["__metadata__", "decodiloco", "dtype", "shape", "data_offsets", "a"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_at_all_is_no_header_and_no_crash(value: Any) -> None:
    text = json.dumps(value).encode()
    with pytest.raises(BlobCorrupt):
        parse_header(len(text).to_bytes(8, "little") + text, "blob")


def test_a_deep_header_is_refused() -> None:
    text = b"[" * 200_000
    with pytest.raises(BlobCorrupt):
        parse_header(len(text).to_bytes(8, "little") + text, "blob")


@pytest.mark.parametrize("payload", [b"", b"1234567", bytes(8), b"\xff" * 64])
def test_a_blob_without_a_header_is_refused(payload: bytes) -> None:
    with pytest.raises(BlobCorrupt):
        open_tensors(Bytes(payload), "blob", named(payload))


def test_raw_arrays_of_three_kinds_come_back() -> None:
    arrays = {
        "z": np.array(7, np.int64),
        "cursor": np.frombuffer(b"abc", np.uint8),
        "nothing": np.zeros(0, np.uint8),
        "moment": SMALL["attention"],
    }
    blob = encode_raw(arrays)
    again = read_raw(stored("raw", blob), "blob", blob.manifest)
    assert blob.manifest.codec == "raw"
    assert list(again) == ["z", "moment", "cursor", "nothing"]
    for name, array in arrays.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape)
        assert again[name].tobytes() == array.tobytes()


def test_an_array_of_objects_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="a: object"):
        encode_raw({"a": np.array([{}], object)})
