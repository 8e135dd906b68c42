"""The digest of a model as learners hold it: torch's casts, name order, nothing forgotten."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.merge.model_digest import live_bytes, model_digest
from tests.merge_orders import numbers
from tests.unit.test_codecs import every_kind_of_float32

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def layout(dtype: str = "bfloat16") -> Layout:
    return Layout(
        fragments=2,
        tensors=tuple(
            Tensor.model_validate(
                {"name": name, "shape": (3, 5), "dtype": dtype, "fragment": place, "rule": "mean"}
            )
            for place, name in enumerate("ab")
        ),
    )


VALUES = {"a": numbers(15, 1).reshape(3, 5), "b": numbers(15, 2).reshape(3, 5)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cast_is_torchs_to_the_bit(dtype: str) -> None:
    values = every_kind_of_float32()
    near_half = np.arange(0x33000000, 0x47900000, 4099, dtype=np.uint32).view(np.float32)
    ties = np.arange(0x38000000, 0x47800000, 0x1000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values[~np.isnan(values)], near_half, ties, -ties])
    theirs = torch.from_numpy(values).to(DTYPES[dtype])
    raw = theirs.view(torch.int32 if dtype == "float32" else torch.int16).numpy()
    assert bytes(live_bytes(values, dtype)) == raw.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_parameters_and_what_a_learner_reads_back_have_one_digest(dtype: str) -> None:
    live = {
        name: torch.from_numpy(array).to(DTYPES[dtype]).to(torch.float32).numpy()
        for name, array in VALUES.items()
    }
    assert model_digest(layout(dtype), live.items()) == model_digest(layout(dtype), VALUES.items())


def test_the_order_in_which_tensors_come_does_not_matter() -> None:
    backwards = reversed(list(VALUES.items()))
    assert model_digest(layout(), backwards) == model_digest(layout(), VALUES.items())


def test_another_value_name_or_dtype_is_another_digest() -> None:
    other = {**VALUES, "b": VALUES["b"] + np.float32(0.5)}
    swapped = {"a": VALUES["b"], "b": VALUES["a"]}
    found = {
        model_digest(layout(), VALUES.items()),
        model_digest(layout(), other.items()),
        model_digest(layout(), swapped.items()),
        model_digest(layout("float16"), VALUES.items()),
    }
    assert len(found) == 4


def test_a_tensor_forgotten_or_given_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="did not come"):
        model_digest(layout(), [("a", VALUES["a"])])
    with pytest.raises(AssertionError, match="a came twice"):
        model_digest(layout(), [("a", VALUES["a"]), *VALUES.items()])
