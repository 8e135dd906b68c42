"""How fast deltas are merged and stepped, in bytes of deltas read, one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from decodiloco.merge import merge_tensor, outer_step
from decodiloco.merge.exact import Floats
from decodiloco.merge.fragment import merge_fragment
from decodiloco.store.tensors import encode_tensors
from tests.bench.figures import Figure, rate_of
from tests.merge_orders import FragmentBench, tensor

ELEMENTS = 1 << 20
LEARNERS = 4


def _stored(deltas: list[Floats], gated: bool) -> Callable[[], object]:
    """A whole merge of fp32 deltas from memory."""
    bench = FragmentBench("bench", (tensor("t", (ELEMENTS,)),))
    blobs = {
        f"l{place}": encode_tensors({"t": delta}, "fp32", squares=True)
        for place, delta in enumerate(deltas)
    }
    off = {} if gated else {"direction": None, "norm_extreme": None}
    order = bench.order(blobs, delta_codec="fp32", **off)
    return lambda: merge_fragment(order, bench.store)


def figures(_quick: bool) -> Iterator[Figure]:
    """One figure a rule, a stored merge without and with cohort gates, and the outer step."""
    draw = np.random.default_rng(0)
    deltas = [draw.standard_normal(ELEMENTS).astype(np.float32) for _ in range(LEARNERS)]
    weights = [1 / LEARNERS] * LEARNERS
    size_megabytes = LEARNERS * ELEMENTS * 4 / 1e6
    yield rate_of(
        "merge: radial, 4 learners of 1 M elements",
        "MB/s",
        size_megabytes,
        lambda: merge_tensor(deltas, weights, rule="radial"),
    )
    yield rate_of(
        "merge: mean, 4 learners of 1 M elements",
        "MB/s",
        size_megabytes,
        lambda: merge_tensor(deltas, weights, rule="mean"),
    )
    for gates in ("without", "with"):
        yield rate_of(
            f"merge: from a store, {gates} cohort gates",
            "MB/s",
            size_megabytes,
            _stored(deltas, gates == "with"),
        )
    yield rate_of(
        "merge: outer step of 1 M elements",
        "MB/s",
        size_megabytes / LEARNERS,
        lambda: outer_step(deltas[0], deltas[1], deltas[2], lr=0.7, mu=0.9),
    )
