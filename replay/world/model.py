"""The small vectors that a learner of the world trains, so that its merges are real ones.

A step pulls every tensor a little towards a goal that all learners share, and adds noise of the
learner's own. Knows layouts and numpy; no protocol.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.merge.model_digest import model_digest
from decodiloco.store.codecs import decode, encode

Floats = npt.NDArray[np.float32]
Arrays = dict[str, Floats]

PULL, NOISE = np.float32(0.05), np.float32(0.01)


class Model:
    """Live parameters in one flat vector, with a view a tensor, and the anchors of fragments."""

    def __init__(self, layout: Layout, seed: tuple[int, ...]) -> None:
        self.layout = layout
        self._draw = np.random.default_rng(seed)
        self._live = np.zeros(sum(tensor.elements for tensor in layout.tensors), np.float32)
        goal = np.random.default_rng(seed[0])
        self._goal = goal.standard_normal(self._live.size, np.float32)
        self._views: Arrays = {}
        start = 0
        for tensor in layout.tensors:
            stop = start + tensor.elements
            self._views[tensor.name] = self._live[start:stop].reshape(tensor.shape)
            start = stop
        self._coarse = [tensor for tensor in layout.tensors if tensor.dtype == "bfloat16"]
        self.anchors: dict[int, Arrays] = {}
        self._copies: dict[int, dict[int, Arrays]] = {}

    def step(self) -> float:
        """One inner step. The loss before it is the largest distance: no order of sums moves it."""
        away = self._goal - self._live
        loss = float(np.maximum.reduce(np.abs(away)))
        noise = self._draw.standard_normal(self._live.size, np.float32)
        self._live += PULL * away + NOISE * noise
        for tensor in self._coarse:
            self._views[tensor.name][...] = as_live(self._views[tensor.name], tensor)
        return loss

    def break_down(self) -> None:
        """A silent fault of the hardware: one number is none any more."""
        self._live[0] = np.nan

    def copy(self, fragment: int) -> Arrays:
        """A fragment as it stands now."""
        return {tensor.name: self._views[tensor.name].copy() for tensor in self.layout.of(fragment)}

    def copy_to_offer(self, fragment: int, learner_step: int) -> tuple[Arrays, Arrays]:
        """The anchor, and the fragment as it stands now; kept until `keep` lets it go."""
        copy = self.copy(fragment)
        self._copies.setdefault(fragment, {})[learner_step] = copy
        return self.anchors[fragment], copy

    def keep(self, fragment: int, learner_steps: Collection[int]) -> None:
        """Lets go of the copies of all other steps."""
        copies = self._copies.get(fragment, {})
        self._copies[fragment] = {step: copies[step] for step in copies if step in learner_steps}

    def load(self, fragment: int, merged: Arrays, alpha: float = 0.0) -> None:
        """Blends a merged version into the live fragment; what stands there then is its anchor."""
        for tensor in self.layout.of(fragment):
            live, new = self._views[tensor.name], merged[tensor.name]
            if alpha:
                new = np.float32(alpha) * live + np.float32(1 - alpha) * new
            live[...] = as_live(new, tensor)
        self.anchors[fragment] = self.copy(fragment)
        self._copies.pop(fragment, None)

    def carry(self, fragment: int, merged: Arrays, merged_step: int | None) -> None:
        """A merged version, and on it all work that is not in it: since the copy of `merged_step`,
        or since the anchor. Copies whose offers may still be merged move along.
        """
        anchor, copies = self.anchors[fragment], self._copies.pop(fragment, {})
        tensors = self.layout.of(fragment)
        new = {tensor.name: as_live(merged[tensor.name], tensor) for tensor in tensors}
        since = anchor if merged_step is None else copies[merged_step]
        for tensor in tensors:
            live, name = self._views[tensor.name], tensor.name
            live[...] = as_live(new[name] + (live - since[name]), tensor)
        if merged_step is None:
            self._copies[fragment] = {
                step: {
                    one.name: as_live(new[one.name] + (copy[one.name] - anchor[one.name]), one)
                    for one in tensors
                }
                for step, copy in copies.items()
            }
        self.anchors[fragment] = new

    def digest(self) -> bytes:
        """As RunClosed carries it."""
        return model_digest(self.layout, self._views.items())


def as_live(array: npt.NDArray[np.float32], tensor: Tensor) -> npt.NDArray[np.float32]:
    """What a live tensor of this dtype keeps of these numbers."""
    if tensor.dtype == "float32":
        return array
    return decode(encode(array, "bf16"), "bf16").reshape(tensor.shape)


def delta_of(base: Arrays, live: Arrays) -> Arrays:
    """Anchor minus live, per tensor."""
    with np.errstate(all="ignore"):
        return {name: np.subtract(base[name], array) for name, array in live.items()}
