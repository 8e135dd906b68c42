"""int8 and int4: what a block keeps, that decoding rounds nothing, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from decodiloco.store.codecs import BLOCKS, coded_bytes, decode, encode
from tests.merge_orders import numbers

WHOLE_AND_RAGGED = (0, 1, 2, 63, 64, 65, 255, 256, 257, 1000, (1 << 18) + 77)

finite = arrays.arrays(
    np.float32,
    st.integers(0, 700),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@pytest.mark.parametrize("codec", BLOCKS)
@pytest.mark.parametrize("elements", WHOLE_AND_RAGGED)
def test_so_many_elements_take_so_many_bytes_and_come_back(codec: str, elements: int) -> None:
    values = numbers(elements, 1)
    payload = encode(values, codec)
    again = decode(payload, codec, elements)
    assert len(payload) == coded_bytes(elements, codec)
    assert (again.shape, again.dtype, again.flags.writeable) == ((elements,), np.float32, False)
    assert encode(again, codec) == payload, "what is coded already loses nothing more"


def test_sizes_are_those_that_are_promised() -> None:
    assert coded_bytes(25_600, "int8") == 25_600 + 2 * 100
    assert coded_bytes(25_600, "int4") == 25_600 // 2 + 2 * 400


@pytest.mark.parametrize("codec", BLOCKS)
def test_an_element_is_off_by_half_a_step_at_most(codec: str) -> None:
    blocks, values = BLOCKS[codec], numbers(4096, 2)
    again = decode(encode(values, codec), codec, 4096)
    rows = np.abs(values).reshape(-1, blocks.elements)
    steps = rows.max(axis=1, keepdims=True) / blocks.top * (1 + 2**-8)  # the scale is rounded, too
    assert (np.abs(values - again).reshape(rows.shape) <= steps / 2).all()


@pytest.mark.parametrize("codec", BLOCKS)
@given(values=finite)
def test_decoding_is_the_exact_product_of_a_scale_and_a_whole_number(
    codec: str, values: np.ndarray
) -> None:
    blocks, payload = BLOCKS[codec], encode(values, codec)
    again = decode(payload, codec, len(values))
    for place in range(len(values)):
        block = payload[coded_bytes(place // blocks.elements * blocks.elements, codec) :]
        scale = np.array([int.from_bytes(block[:2], "little") << 16], np.uint32).view(np.float32)[0]
        at = place % blocks.elements
        bits = block[2 + at] if blocks.bits == 8 else block[2 + at // 2] >> 4 * (at % 2) & 15
        number = bits - (1 << blocks.bits) * (bits >> (blocks.bits - 1))
        if np.isnan(scale):
            assert np.isnan(again[place])
        else:
            assert Fraction(float(again[place])) == Fraction(float(scale)) * number


@pytest.mark.parametrize("codec", BLOCKS)
@given(values=finite, blocks_before=st.integers(0, 3))
def test_a_range_that_begins_a_block_decodes_by_itself(
    codec: str, values: np.ndarray, blocks_before: int
) -> None:
    first = min(blocks_before * BLOCKS[codec].elements, len(values))
    first -= first % BLOCKS[codec].elements
    payload = encode(values, codec)[coded_bytes(first, codec) :]
    part = decode(payload, codec, len(values) - first)
    assert part.tobytes() == decode(encode(values, codec), codec, len(values))[first:].tobytes()


@pytest.mark.parametrize("codec", BLOCKS)
@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_not_finite_or_nearly_so_spoils_its_block_and_no_other(
    codec: str, strange: float
) -> None:
    values = numbers(1024, 3)
    values[300] = strange
    lost = np.isnan(decode(encode(values, codec), codec, 1024))
    block = 300 // BLOCKS[codec].elements
    assert set(np.flatnonzero(lost) // BLOCKS[codec].elements) == {block}
    assert lost.sum() == BLOCKS[codec].elements


@pytest.mark.parametrize("codec", BLOCKS)
def test_what_is_too_small_for_a_normal_scale_is_zero(codec: str) -> None:
    values = np.full(256, 1e-38, np.float32)
    assert not decode(encode(values, codec), codec, 256).any()


SCALES = {
    "negative zero": 0x8000,
    "negative": 0xBF80,
    "subnormal": 0x0001,
    "infinite": 0x7F80,
    "another NaN": 0x7FC1,
    "huge": 0x7B81,
}


@pytest.mark.parametrize("codec", BLOCKS)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("block", [0, 1])
def test_a_scale_that_is_never_written_is_refused(codec: str, scale: int, block: int) -> None:
    elements = BLOCKS[codec].elements + 9
    payload = bytearray(encode(numbers(elements, 4), codec))
    start = coded_bytes(block * BLOCKS[codec].elements, codec)
    payload[start : start + 2] = scale.to_bytes(2, "little")
    with pytest.raises(ValueError, match=f"scale is 0x{scale:04x}"):
        decode(bytes(payload), codec, elements)


def test_a_half_of_a_byte_that_belongs_to_no_element_is_zero() -> None:
    payload = bytearray(encode(numbers(65 + 64, 5), "int4"))
    payload[-1] |= 0x10
    with pytest.raises(ValueError, match="belongs to no element"):
        decode(bytes(payload), "int4", 129)


@pytest.mark.parametrize("codec", BLOCKS)
@pytest.mark.parametrize("more", [-1, 1])
def test_too_few_or_too_many_bytes_are_refused(codec: str, more: int) -> None:
    payload = encode(numbers(300, 6), codec) + b"\0"
    with pytest.raises(ValueError, match="for 300 elements"):
        decode(payload[: len(payload) - 1 + more], codec, 300)


def test_the_bytes_of_a_block_are_these_on_every_machine() -> None:
    values = np.array([7.0, -7.0, 1.0, -1.5, 2.5, 0.4], np.float32)
    assert encode(values, "int4").hex() == "803f" + "97e102"  # 7 -7, 1 -2, 2 0: half to even
    assert encode(values / 7 * 127, "int8").hex() == "803f" + "7f8112e52d07"
