"""One digest of a whole model as its learners hold it: in the dtypes of their live tensors.

Knows arrays and the layout; no torch. Casts are those of torch's `.to()`: round half to even.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from decodiloco.fragments.layout import Dtype, Layout
from decodiloco.store.halves import to_bf16
from streams.codec import pack


def model_digest(layout: Layout, tensors: Iterable[tuple[str, npt.NDArray[np.float32]]]) -> bytes:
    """Digest the model: equal digests mean equal live tensors, bit for bit.

    blake3 over the tensors sorted by name, each as canonical msgpack of (name, dtype, shape,
    blake3 of its elements cast to `dtype`, little-endian). `tensors` gives each of the layout's
    tensors once, as float32, in any order; only one need be in memory.
    """
    known = {tensor.name: tensor for tensor in layout.tensors}
    elements: dict[str, bytes] = {}
    for name, array in tensors:
        tensor = known[name]
        assert array.dtype == np.float32 and array.shape == tensor.shape, name
        assert name not in elements, f"{name} came twice"
        elements[name] = blake3(live_bytes(array, tensor.dtype)).digest()
    assert len(elements) == len(known), "a tensor of the layout did not come"
    hasher = blake3()
    for tensor in layout.tensors:
        hasher.update(pack([tensor.name, tensor.dtype, tensor.shape, elements[tensor.name]]))
    return hasher.digest()


def live_bytes(array: npt.NDArray[np.float32], dtype: Dtype) -> memoryview:
    """The array's elements as they stand in a live tensor of this dtype."""
    flat = np.ascontiguousarray(array).reshape(-1)
    live: npt.NDArray[Any]
    match dtype:
        case "float32":
            live = flat
        case "bfloat16":
            live = to_bf16(flat)
        case "float16":
            with np.errstate(over="ignore"):  # beyond 65504 it is infinite, as in torch
                live = flat.astype(np.float16)
    return live.view(np.uint8).data
