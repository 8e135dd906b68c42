"""Which facts' bytes are kept below a horizon, and which blobs may go. Pure: facts in, keys out.

Knows what facts name; must not know how they are read, nor any store's listing: what no fact
names is never deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from decodiloco.store.keys import named_by
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    Event,
    FragmentMerged,
    SnapshotStored,
)
from streams.manifest import Manifest

Naming = DeltaOffered | FragmentMerged | CheckpointStored | SnapshotStored


class Named(NamedTuple):
    """A fact that names blobs which may go some day, and its position."""

    position: int
    event: Naming


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run needs below its horizon, besides its opening.

    `offers` are the positions of those that were not settled at the horizon; `versions` each
    fragment's version there, from which merges are made again, and `newest` its newest one.
    """

    offers: Collection[int]
    versions: Sequence[int]
    newest: Sequence[int]


def may_go(event: Event) -> TypeGuard[Naming]:
    """Whether what a fact names may go some day: openings and archives never do."""
    return isinstance(event, Naming)


def kept_below(facts: Iterable[Named], horizon: int, needs: Needs) -> tuple[int, ...]:
    """The positions, in order, of the facts up to the horizon whose bytes are kept.

    Offers not settled at the horizon; of each fragment the version there and the newest two;
    and of each learner the newest checkpoint, which its next life, or another's, may take.
    """
    kept: list[int] = []
    checkpoints: dict[str, int] = {}
    for position, event in facts:
        if position > horizon:
            continue
        match event:
            case DeltaOffered() if position in needs.offers:
                kept.append(position)
            case FragmentMerged(fragment=fragment, version=version):
                if version == needs.versions[fragment] or version >= needs.newest[fragment] - 1:
                    kept.append(position)
            case CheckpointStored(learner=learner):
                checkpoints[learner] = max(position, checkpoints.get(learner, 0))
            case _:
                pass
    return tuple(sorted((*kept, *checkpoints.values())))


def going(
    run: str, facts: Iterable[Named], horizon: int, kept: Collection[int]
) -> tuple[tuple[str, Manifest], ...]:
    """Key and manifest of each blob that may be deleted, by key.

    One that a kept fact names, or one above the horizon, stays: a delta that is offered again,
    or a snapshot that is told again, is one blob and two facts.
    """
    gone: dict[str, Manifest] = {}
    stays: list[str] = []
    whole = frozenset(kept)
    for position, event in facts:
        named = named_by(run, event)
        if position > horizon or position in whole:
            stays.extend(key for key, _ in named)
        else:
            gone.update(named)
    for key in stays:
        gone.pop(key, None)
    return tuple(sorted(gone.items()))
