"""The layout: each tensor once, each fragment with a tensor, one digest."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from decodiloco.fragments.layout import Layout, Tensor


def tensor(name: str, fragment: int = 0, **fields: Any) -> Tensor:
    return Tensor.model_validate(
        {
            "name": name,
            "shape": (4, 2),
            "dtype": "float32",
            "fragment": fragment,
            "rule": "radial",
            **fields,
        }
    )


LAYOUT = Layout(
    fragments=2,
    tensors=(tensor("a", 1), tensor("b", 0, shape=(3,)), tensor("c", 1, shape=())),
)


def test_a_fragment_holds_its_tensors_in_name_order() -> None:
    assert [one.name for one in LAYOUT.of(1)] == ["a", "c"]
    assert (LAYOUT.elements(0), LAYOUT.elements(1)) == (3, 9)
    assert LAYOUT.of(2) == LAYOUT.of(-1) == ()


def test_a_layout_comes_back_from_its_plain_values() -> None:
    again = Layout.model_validate(LAYOUT.as_plain())
    assert again == LAYOUT
    assert again.digest == LAYOUT.digest


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "d"},
        {"shape": (2, 4)},
        {"dtype": "bfloat16"},
        {"rule": "mean"},
        {"aliases": ("d",)},
    ],
)
def test_whatever_differs_in_a_tensor_changes_the_digest(changed: dict[str, Any]) -> None:
    last = Tensor.model_validate({**tensor("c", 1, shape=()).model_dump(), **changed})
    other = Layout(fragments=2, tensors=(*LAYOUT.tensors[:2], last))
    assert other.digest != LAYOUT.digest


@pytest.mark.parametrize(
    "tensors",
    [
        (tensor("b"), tensor("a", 1)),
        (tensor("a"), tensor("a", 1)),
        (tensor("a"), tensor("b")),
        (tensor("a"), tensor("b", 1), tensor("c", 2)),
        (),
    ],
    ids=["unsorted", "twice", "an empty fragment", "one fragment too many", "none"],
)
def test_an_unsound_layout_cannot_be_made(tensors: tuple[Tensor, ...]) -> None:
    with pytest.raises(ValidationError):
        Layout(fragments=2, tensors=tensors)


@pytest.mark.parametrize(
    "fields", [{"shape": (0,)}, {"shape": (-1,)}, {"dtype": "int8"}, {"rule": "max"}, {"rule": 1}]
)
def test_an_unsound_tensor_cannot_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        tensor("a", **fields)
