"""Small deltas, made once: some of each fragment, so that learners do not all say the same."""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from decodiloco.opening import Opening
from decodiloco.store.tensors import Encoded, encode_tensors

KINDS = 8


class Deltas:
    """The encoded deltas of a run, by learner and fragment."""

    def __init__(self, opening: Opening) -> None:
        codec = opening.run.codecs.delta
        self._made = [
            [encode_tensors(_arrays(opening, fragment, kind), codec, squares=True)
             for kind in range(KINDS)]
            for fragment in range(opening.layout.fragments)
        ]  # fmt: skip

    def of(self, learner: str, fragment: int) -> Encoded:
        """The delta that this learner offers for a fragment, always."""
        return self._made[fragment][blake3(learner.encode()).digest()[0] % KINDS]


def _arrays(opening: Opening, fragment: int, kind: int) -> dict[str, np.ndarray]:
    """Upwards, as that of a learner whose gradients are ones, and some noise: no gate doubts it."""
    draw = np.random.default_rng([fragment, kind])
    return {
        tensor.name: (1 + 0.1 * draw.standard_normal(tensor.shape, dtype=np.float32)) / 1000
        for tensor in opening.layout.of(fragment)
    }
