"""The merges of a tape as they are compared: who contributed what, with which share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from decodiloco.merge.rules import token_weight
from decodiloco.store.keys import key_of_offer
from streams.envelope import Envelope
from streams.events import DeltaOffered, FragmentMerged, WindowClosed
from streams.manifest import Manifest

MERGES_MAX = 10_000
"""Merges that are held in memory to be compared; what comes after them is counted only."""


@dataclass(frozen=True, slots=True)
class Share:
    """One contribution to a merge: whose, what it covers, its exact share, and its bytes."""

    learner: str
    learner_step: int
    inner_steps: int
    tokens: int
    weight: Fraction
    key: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge of one tape. `left_out` holds learner and reason."""

    position: int
    event: FragmentMerged
    shares: tuple[Share, ...]
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A fragment's version as each tape made it; None where it did not."""

    fragment: int
    version: int
    one: Merge | None
    other: Merge | None

    @property
    def differs(self) -> tuple[str, ...]:
        """In what the two are not the same; empty when they are."""
        if self.one is None or self.other is None:
            return ("made by one only",)
        one, other = self.one, self.other
        names = {
            "contributions": (_who(one), _who(other)),
            "weights": (_weights(one), _weights(other)),
            "deltas": (_deltas(one), _deltas(other)),
            "left out": (one.left_out, other.left_out),
            "parameters": (one.event.parameters, other.event.parameters),
            "momentum": (one.event.momentum, other.event.momentum),
        }
        return tuple(name for name, (mine, theirs) in names.items() if mine != theirs)


@dataclass(slots=True)
class Merges:
    """The merges of a tape, told its facts in order: kept, and counted anew, from the parting on.

    `count` goes on where MERGES_MAX are kept.
    """

    run: str
    keep: bool = False
    count: int = 0
    found: dict[tuple[int, int], Merge] = field(default_factory=dict)
    offers: dict[int, DeltaOffered] = field(default_factory=dict)

    def keep_from_here(self) -> None:
        """Here the tapes part."""
        self.keep, self.count = True, 0

    def tell(self, envelope: Envelope) -> None:
        """Takes one fact in. An offer is remembered until it is settled."""
        event = envelope.event
        if isinstance(event, DeltaOffered):
            self.offers[envelope.position] = event
        elif isinstance(event, FragmentMerged):
            self.count += 1
            if self.keep and len(self.found) < MERGES_MAX:
                self.found[event.fragment, event.version] = self._merge(envelope.position, event)
            self._forget((*event.contributions, *(each.position for each in event.left_out)))
        elif isinstance(event, WindowClosed):
            self._forget(event.superseded)

    def _forget(self, settled: tuple[int, ...]) -> None:
        for position in settled:
            self.offers.pop(position, None)

    def _merge(self, position: int, event: FragmentMerged) -> Merge:
        offers = [self.offers[each] for each in event.contributions if each in self.offers]
        whole = sum((_weight(offer) for offer in offers), Fraction(0))
        shares = tuple(
            Share(
                learner=offer.learner,
                learner_step=offer.learner_step,
                inner_steps=offer.inner_steps,
                tokens=offer.tokens,
                weight=_weight(offer) / whole if whole else Fraction(0),
                key=key_of_offer(self.run, offer),
                manifest=offer.manifest,
            )
            for offer in sorted(offers, key=lambda offer: offer.learner)
        )
        left_out = tuple(
            (self.offers[each.position].learner, each.reason)
            for each in event.left_out
            if each.position in self.offers
        )
        return Merge(position, event, shares, left_out)


def pairs(one: Merges, other: Merges) -> tuple[Pair, ...]:
    """What both made from the parting on, by fragment and version, in the order of the tapes."""
    names = {**dict.fromkeys(one.found), **dict.fromkeys(other.found)}
    made = [Pair(*name, one.found.get(name), other.found.get(name)) for name in names]
    return tuple(sorted(made, key=_first_position))


def first_differing(made: tuple[Pair, ...], most: int) -> tuple[Pair, ...]:
    """The first merge of each fragment that is not the same on both sides, `most` of them."""
    found: dict[int, Pair] = {}
    for pair in made:
        if pair.differs and pair.fragment not in found and len(found) < most:
            found[pair.fragment] = pair
    return tuple(found.values())


def _first_position(pair: Pair) -> tuple[int, int, int]:
    positions = [made.position for made in (pair.one, pair.other) if made is not None]
    return min(positions), pair.fragment, pair.version


def _weight(offer: DeltaOffered) -> Fraction:
    if offer.tokens < 1 or offer.inner_steps < 1:  # what no admission lets through
        return Fraction(0)
    return token_weight(offer.tokens, offer.inner_steps)


def _who(merge: Merge) -> list[tuple[str, int, int, int]]:
    return [
        (each.learner, each.learner_step, each.inner_steps, each.tokens) for each in merge.shares
    ]


def _weights(merge: Merge) -> list[tuple[str, Fraction]]:
    return [(each.learner, each.weight) for each in merge.shares]


def _deltas(merge: Merge) -> list[Manifest]:
    return [each.manifest for each in merge.shares]
