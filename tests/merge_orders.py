"""Merge orders for tests: a fragment of three tensors and learners' deltas, in a memory store.

`FragmentBench("name").order(a=delta, b=delta)` stores what the order names. Deltas and
parameters come from a counter, never from a random source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from decodiloco.fragments.layout import Tensor
from decodiloco.merge.fragment import (
    Contribution,
    Merged,
    MergeOrder,
    MergeSettings,
)
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import delta_key, global_key
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import Encoded, encode_tensors

Arrays = dict[str, npt.NDArray[np.float32]]

RUN = "trial"
SETTINGS = MergeSettings(
    lr=0.7,
    mu=0.9,
    norm_clip=2.0,
    direction=0.5,
    norm_extreme=100.0,
    delta_codec="bf16",
    fragment_codec="fp32",
    fetch_seconds_max=0.0,
)


def tensor(name: str, shape: tuple[int, ...], rule: str = "radial") -> Tensor:
    return Tensor.model_validate(
        {"name": name, "shape": shape, "dtype": "float32", "fragment": 0, "rule": rule}
    )


TENSORS = (
    tensor("attention", (130, 257)),
    tensor("bias", ()),
    tensor("embedding", (40, 16), rule="mean"),
)


def numbers(elements: int, seed: int, size: float = 1.0) -> npt.NDArray[np.float32]:
    """Values of both signs up to `size`, from integers, the same on any machine."""
    index = np.arange(elements, dtype=np.uint64) + np.uint64(seed * 1_000_003)
    bits = (index * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)) >> (
        np.uint64(40)
    )
    values = (bits.astype(np.float64) / 2.0**23 - 1.0) * size
    return values.astype(np.float32)


def filled(seed: int, size: float = 1.0, tensors: tuple[Tensor, ...] = TENSORS) -> Arrays:
    """A value for each tensor of the fragment."""
    return {
        one.name: numbers(one.elements, 31 * seed + place, size).reshape(one.shape)
        for place, one in enumerate(tensors)
    }


class FragmentBench:
    """A memory store of its own, and orders whose blobs are in it."""

    def __init__(self, name: str, tensors: tuple[Tensor, ...] = TENSORS) -> None:
        self.store: BlobStore = open_store(f"memory://{name}")
        self.tensors = tensors

    def offer(
        self, learner: str, position: int, delta: Arrays | Encoded, codec: str = "bf16"
    ) -> Contribution:
        """A contribution whose delta is stored."""
        if not isinstance(delta, Encoded):
            delta = encode_tensors(delta, codec, squares=True)
        key = delta_key(RUN, learner, 3, 0, position, delta.manifest)
        self.store.put(key, delta.parts)
        return Contribution(position, learner, 1000 + position, 24, key, delta.manifest)

    def order(
        self, deltas: Mapping[str, Arrays | Encoded], quorum: int = 1, **settings: Any
    ) -> MergeOrder:
        """A first merge (version 1) of these learners' deltas, at positions 11, 12, ..."""
        parameters = encode_tensors(filled(99, tensors=self.tensors), "fp32")
        self.store.put(global_key(RUN, 0, 0, parameters.manifest), parameters.parts)
        contributions = tuple(
            self.offer(learner, 11 + place, deltas[learner])
            for place, learner in enumerate(sorted(deltas))
        )
        return MergeOrder(
            run=RUN,
            round=0,
            fragment=0,
            version=1,
            tensors=self.tensors,
            quorum=quorum,
            contributions=contributions,
            parameters=parameters.manifest,
            momentum=None,
            report=None,
            report_round=None,
            settings=replace(SETTINGS, **settings),
        )

    def following(
        self, order: MergeOrder, merged: Merged, deltas: Mapping[str, Arrays]
    ) -> MergeOrder:
        """Store a merge's blobs; the order of the fragment's next version."""
        for key, parts in merged.blobs(order):
            self.store.put(key, parts)
        return replace(
            order,
            round=order.round + 1,
            version=order.version + 1,
            contributions=tuple(
                self.offer(learner, 1011 + place + 100 * order.version, deltas[learner])
                for place, learner in enumerate(sorted(deltas))
            ),
            parameters=merged.parameters.manifest,
            momentum=merged.momentum.manifest,
            report=merged.report.manifest,
            report_round=order.round,
        )


class Stumbling:
    """A store whose reads fail as told: `trouble(key, attempt)` is raised if it is not None."""

    def __init__(self, store: BlobStore, trouble: Callable[[str, int], Exception | None]) -> None:
        self.url = store.url
        self.reads: list[str] = []
        self._store = store
        self._trouble = trouble

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> bytes | memoryview:
        self.reads.append(key)
        error = self._trouble(key, self.reads.count(key))
        if error is not None:
            raise error
        return self._store.read(key, start, stop, anew)

    def put(self, key: str, parts: Any) -> None:
        self._store.put(key, parts)

    def size(self, key: str) -> int | None:
        return self._store.size(key)

    def keys(self, prefix: str) -> list[str]:
        return self._store.keys(prefix)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def close(self) -> None:
        self._store.close()


def digests(merged: Merged) -> dict[str, str]:
    """blake3 of all bytes of each blob of a merge."""
    blobs = {"parameters": merged.parameters, "momentum": merged.momentum, "report": merged.report}
    return {
        name: blake3(b"".join(bytes(part) for part in blob.parts)).hexdigest()
        for name, blob in blobs.items()
    }
