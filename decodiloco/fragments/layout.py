"""The layout of a run: each trained tensor, its fragment and its merge rule. Knows no torch."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, Literal

from blake3 import blake3
from pydantic import Field, StringConstraints, model_validator

from streams.codec import pack
from streams.parts import Part

TENSORS_MAX = 100_000

Dtype = Literal["float32", "bfloat16", "float16"]
TensorName = Annotated[str, StringConstraints(min_length=1, max_length=300)]


class Tensor(Part):
    """One trained tensor: how it lives in the model, and where it belongs in the run.

    `dtype` is that of the live parameter; deltas and merged fragments are float32 always.
    `aliases` are further names of the same memory (tied weights).
    """

    name: TensorName
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    dtype: Dtype
    fragment: Annotated[int, Field(ge=0)]
    rule: Literal["radial", "mean", "trimmed", "median"]
    aliases: tuple[TensorName, ...] = ()

    @property
    def elements(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)


class Layout(Part):
    """All trained tensors, sorted by name, dealt to `fragments` fragments, none of them empty."""

    fragments: Annotated[int, Field(ge=1)]
    tensors: Annotated[tuple[Tensor, ...], Field(min_length=1, max_length=TENSORS_MAX)]

    @model_validator(mode="after")
    def _sound(self) -> Layout:
        names = [tensor.name for tensor in self.tensors]
        if names != sorted(set(names)):
            raise ValueError("tensors must be sorted by name, each once")
        if {tensor.fragment for tensor in self.tensors} != set(range(self.fragments)):
            raise ValueError("every fragment must hold a tensor, and every tensor a fragment")
        return self

    def of(self, fragment: int) -> tuple[Tensor, ...]:
        """The tensors of one fragment, sorted by name; of one that is not, none."""
        return self._dealt[fragment] if 0 <= fragment < self.fragments else ()

    @cached_property
    def _dealt(self) -> tuple[tuple[Tensor, ...], ...]:
        """Of each fragment. A large model has thousands of tensors, and each offer asks for it."""
        dealt: list[list[Tensor]] = [[] for _ in range(self.fragments)]
        for tensor in self.tensors:
            dealt[tensor.fragment].append(tensor)
        return tuple(map(tuple, dealt))

    def elements(self, fragment: int) -> int:
        """How many numbers one fragment holds."""
        return sum(tensor.elements for tensor in self.of(fragment))

    @property
    def digest(self) -> bytes:
        """blake3 of the canonical msgpack of the layout: equal models give equal digests."""
        return blake3(pack(self.as_plain())).digest()

    def as_plain(self) -> dict[str, Any]:
        """Plain values, as they stand in the opening."""
        return self.model_dump()
