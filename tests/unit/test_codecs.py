"""Codecs: fp32 as it is, bf16 as torch rounds it, decoding exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decodiloco.store.codecs import decode, encode, encoded_view


def every_kind_of_float32() -> np.ndarray:
    """All upper halves with lower halves around the tie: subnormal, normal, infinite and NaN."""
    upper = np.arange(0x10000, dtype=np.uint32) << np.uint32(16)
    lowers = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
    return np.concatenate([upper | np.uint32(lower) for lower in lowers]).view(np.float32)


def test_fp32_comes_back_bit_for_bit() -> None:
    values = every_kind_of_float32()
    again = decode(encode(values, "fp32"), "fp32")
    assert np.array_equal(again.view(np.uint32), values.view(np.uint32))


def test_bf16_rounds_as_torch_does_for_every_kind_of_number() -> None:
    values = every_kind_of_float32()
    ours = decode(encode(values, "bf16"), "bf16")
    theirs = torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()
    number = ~np.isnan(values)
    assert np.array_equal(ours[number].view(np.uint32), theirs[number].view(np.uint32))


def test_bf16_keeps_nan_and_infinity() -> None:
    values = np.array([np.nan, np.inf, -np.inf], np.float32)
    nearly = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    again = decode(encode(np.concatenate([values, nearly]), "bf16"), "bf16")
    assert np.isnan(again[[0, 3, 4]]).all()
    assert again[1:3].tolist() == [np.inf, -np.inf]


def test_what_bf16_gave_is_kept_by_bf16() -> None:
    values = every_kind_of_float32()
    once = encode(values, "bf16")
    assert encode(decode(once, "bf16"), "bf16") == once


def test_bytes_are_little_endian_and_in_c_order() -> None:
    table = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert encode(table[:1], "fp32") == bytes.fromhex("0000803f00000040")
    assert encode(table.T, "bf16") == bytes.fromhex("803f404000408040")


def test_fp32_is_not_copied_when_it_need_not_be() -> None:
    values = np.arange(4, dtype=np.float32)
    view = encoded_view(values, "fp32")
    values[0] = 7.0
    assert decode(view, "fp32")[0] == 7.0


def test_what_is_decoded_cannot_be_written_to() -> None:
    for codec in ("fp32", "bf16"):
        values = decode(encode(np.ones(3, np.float32), codec), codec)
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0.0


def test_an_unknown_codec_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="int3"):
        encode(np.ones(1, np.float32), "int3")
