"""What a merge is asked to do, and what comes of it, as values.

Knows positions, keys and manifests; must not know how anything is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from decodiloco.fragments.layout import Tensor
from decodiloco.merge.rules import token_weight
from decodiloco.store.keys import global_key, outer_key, report_key
from decodiloco.store.tensors import Encoded, Part
from streams.manifest import Manifest
from streams.parts import LeftOut


@dataclass(frozen=True, slots=True)
class Contribution:
    """One admitted offer: its position on the tape, its counts, and where its delta lies.

    `distrusted`: deltas of this life pointed elsewhere so often that one that does is left out.
    """

    position: int
    learner: str
    tokens: int
    inner_steps: int
    key: str
    manifest: Manifest
    distrusted: bool = False

    @property
    def weight(self) -> Fraction:
        """tokens^2 / inner_steps, exactly."""
        return token_weight(self.tokens, self.inner_steps)


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """What the run's config says about merging."""

    lr: float
    mu: float
    norm_clip: float | None
    direction: float | None
    norm_extreme: float | None
    delta_codec: str
    fragment_codec: str
    fetch_seconds_max: float


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """All that a merge depends on: who contributes, and the fragment as it was.

    `contributions` are in learner-id order, one a learner. `parameters` are those of version
    `version - 1`; `momentum` is None where it is zero, at version 1. `report` is that of the
    fragment's last merge, made in round `report_round`; both None at version 1. `settled`: who
    contributes was decided before, so that nobody is held against the others again.
    """

    run: str
    round: int
    fragment: int
    version: int
    tensors: tuple[Tensor, ...]
    quorum: int
    contributions: tuple[Contribution, ...]
    parameters: Manifest
    momentum: Manifest | None
    report: Manifest | None
    report_round: int | None
    settings: MergeSettings
    settled: bool = False

    @property
    def elements(self) -> int:
        """How many numbers the fragment holds."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Merged:
    """The next version of a fragment, ready to be stored, and who is in it (by position).

    `doubted` are those of the contributions that point elsewhere than the others.
    """

    contributions: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    parameters: Encoded
    momentum: Encoded
    report: Encoded
    outer_gradient_norm: float
    doubted: tuple[int, ...] = ()

    def blobs(self, order: MergeOrder) -> list[tuple[str, Sequence[Part]]]:
        """Keys and parts of parameters, momentum and report, in the order to store them."""
        run, fragment, version = order.run, order.fragment, order.version
        return [
            (global_key(run, fragment, version, self.parameters.manifest), self.parameters.parts),
            (outer_key(run, fragment, version, self.momentum.manifest), self.momentum.parts),
            (report_key(run, order.round, self.report.manifest), self.report.parts),
        ]

    def stored(self) -> StoredMerge:
        """The same once its blobs are stored: by their manifests."""
        return StoredMerge(
            contributions=self.contributions,
            left_out=self.left_out,
            parameters=self.parameters.manifest,
            momentum=self.momentum.manifest,
            report=self.report.manifest,
            outer_gradient_norm=self.outer_gradient_norm,
            doubted=self.doubted,
        )


@dataclass(frozen=True, slots=True)
class StoredMerge:
    """A merge as the fact of it tells: its new version lies in the store, named by manifests."""

    contributions: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    parameters: Manifest
    momentum: Manifest
    report: Manifest
    outer_gradient_norm: float
    doubted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Fewer than the quorum passed the byte gates."""

    left_out: tuple[LeftOut, ...]
