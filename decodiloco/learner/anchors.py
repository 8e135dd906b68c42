"""Where a learner's fragments stand: anchors, the copies that were offered, and the live tensors.

Knows tensors and learner steps, no protocol: who was merged is told. All methods belong to the
thread that trains, between two steps. A life begins with `load` of every fragment; then, at each
boundary, `copy` what is offered and `adopt` what was merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from decodiloco.config import Adoption
from decodiloco.learner.adopt import add, rounded, write
from decodiloco.learner.copies import Arrays, HostBuffers, HostCopy

Live = Mapping[str, torch.Tensor]


class Anchors:
    """Each fragment's anchor, and under *carry* its copies by the learner step they were made at.

    The anchor is the merged fragment as the live dtype can hold it; a delta is anchor minus live.
    """

    def __init__(self, adoption: Adoption, buffers: HostBuffers | None = None) -> None:
        self._alpha = adoption.alpha
        self._carry = adoption.carry
        self._buffers = buffers or HostBuffers()
        self._anchors: dict[int, Arrays] = {}
        self._copies: dict[int, dict[int, Arrays]] = {}

    def load(self, parameters: Live, fragment: int, arrays: Arrays) -> None:
        """Overwrites, whatever the settings are: at a join, to heal, and at the run's end.

        No later adoption goes back to a copy that was made before.
        """
        self._anchors[fragment] = write(parameters, arrays, alpha=0.0)
        self._copies.pop(fragment, None)

    def copy(
        self, parameters: Live, fragment: int, names: Iterable[str], learner_step: int
    ) -> HostCopy:
        """The fragment as it stands after this learner step, beside its anchor."""
        live, arrived = self._buffers.copied(parameters, names)
        copy = HostCopy(self._anchors[fragment], live, arrived)
        if self._carry:
            copy.wait()  # the next boundary may already go back to it
            self._copies.setdefault(fragment, {})[learner_step] = live
        return copy

    def keep(self, fragment: int, learner_steps: Iterable[int]) -> None:
        """Lets go of this fragment's copies of all other steps: they can be merged no more."""
        kept = frozenset(learner_steps)
        copies = self._copies.get(fragment, {})
        self._copies[fragment] = {step: copy for step, copy in copies.items() if step in kept}

    def adopt(
        self, parameters: Live, fragment: int, arrays: Arrays, merged_step: int | None
    ) -> None:
        """A merged version comes into the live tensors: overwritten, blended or carried.

        `merged_step` matters under *carry* only: the learner step of the copy, made since the
        anchor was set, whose offer is in this version or in one since the anchor; None when
        there is no such copy.
        """
        if not self._carry:
            self._anchors[fragment] = write(parameters, arrays, self._alpha)
            return
        anchor, copies = self._anchors[fragment], self._copies.pop(fragment, {})
        merged = rounded(parameters, arrays)
        if merged_step is None:
            add(parameters, merged, anchor)
            self._copies[fragment] = {
                step: rounded(parameters, _moved(copy, anchor, merged))
                for step, copy in copies.items()
            }
        else:  # whatever else was copied from that anchor holds steps that are merged by now
            add(parameters, merged, copies[merged_step])
        self._anchors[fragment] = merged


def _moved(copy: Arrays, anchor: Arrays, merged: Arrays) -> Arrays:
    """A copy as it would stand had it been trained from the merged fragment: float32."""
    with np.errstate(all="ignore"):
        return {name: merged[name] + (array - anchor[name]) for name, array in copy.items()}
