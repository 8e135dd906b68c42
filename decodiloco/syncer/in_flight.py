"""Offers that are admitted and not settled yet: a frozen map that is cheap to change. Pure.

There may be a thousand of them, and each fact makes a new map. They are kept apart by fragment, so
that one offer more or less costs a copy of its fragment's offers and not of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from streams.manifest import Manifest


@dataclass(frozen=True)
class Offer:
    """An admitted offer that is not settled yet."""

    position: int
    learner: str
    incarnation: int
    round: int
    fragment: int
    base_version: int
    learner_step: int
    inner_steps: int
    tokens: int
    manifest: Manifest


NONE: Mapping[int, Offer] = MappingProxyType({})


class Offers(Mapping[int, Offer]):
    """Offers by position; whoever goes through them meets them in the order of the tape."""

    __slots__ = ("_by_fragment",)

    def __init__(self, offers: Mapping[int, Offer] = NONE) -> None:
        self._by_fragment: dict[int, dict[int, Offer]] = {}
        for position in sorted(offers):
            held = self._by_fragment.setdefault(offers[position].fragment, {})
            held[position] = offers[position]

    def __getitem__(self, position: int) -> Offer:
        for held in self._by_fragment.values():
            if position in held:
                return held[position]
        raise KeyError(position)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(position for held in self._by_fragment.values() for position in held))

    def __len__(self) -> int:
        return sum(map(len, self._by_fragment.values()))

    def __repr__(self) -> str:
        return f"Offers({dict(self)})"

    def of(self, fragment: int) -> Mapping[int, Offer]:
        """Those of one fragment, in the order of the tape. Not to be changed."""
        return self._by_fragment.get(fragment, NONE)

    def also(self, offer: Offer) -> Offers:
        """These and one more, which is the newest."""
        held = {**self.of(offer.fragment), offer.position: offer}
        return _offers({**self._by_fragment, offer.fragment: held})

    def without(self, gone: Iterable[Offer]) -> Offers:
        """These but for some of them. Raises KeyError where one is not there, or named twice."""
        left = dict(self._by_fragment)
        for offer in gone:
            held = left[offer.fragment]
            if held is self._by_fragment[offer.fragment]:
                held = left[offer.fragment] = dict(held)
            del held[offer.position]
        return _offers({fragment: held for fragment, held in left.items() if held})

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """How a snapshot's offers are read: as any map, then put in order."""
        return core_schema.no_info_after_validator_function(cls, handler(dict[int, Offer]))


def _offers(by_fragment: dict[int, dict[int, Offer]]) -> Offers:
    made = Offers.__new__(Offers)
    made._by_fragment = by_fragment
    return made
