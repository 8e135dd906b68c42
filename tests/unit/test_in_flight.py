"""Offers in flight: a frozen map, whatever is done to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodiloco.syncer.in_flight import Offer, Offers
from decodiloco.syncer.machine import TRANSITIONS
from streams.events import EVENTS
from tests.builders import manifest

BLOB = manifest()


def offer(position: int, fragment: int) -> Offer:
    return Offer(position, "a", 3, 1, fragment, 0, 4, 4, 400, BLOB)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_offers_are_what_a_plain_map_of_them_is(steps: list[tuple[int, bool]]) -> None:
    plain: dict[int, Offer] = {}
    offers, before = Offers(), []
    for position, (fragment, comes) in enumerate(steps, 1):
        before.append((offers, dict(plain)))
        if comes or not plain:
            plain[position] = offer(position, fragment)
            offers = offers.also(plain[position])
        else:
            gone = [one for one in plain.values() if one.fragment <= fragment]
            plain = {key: one for key, one in plain.items() if one not in gone}
            offers = offers.without(gone)
        assert dict(offers) == plain and list(offers) == sorted(plain)
        assert len(offers) == len(plain) and offers == Offers(plain)
        for number in range(4):
            ours = {key: one for key, one in plain.items() if one.fragment == number}
            assert offers.of(number) == ours
    assert all(dict(old) == as_it_was for old, as_it_was in before), "none was changed"


def test_an_offer_that_is_not_there_cannot_go_nor_can_one_go_twice() -> None:
    offers = Offers({5: offer(5, 0)})
    for gone in ([offer(6, 0)], [offer(5, 1)], [offer(5, 0)] * 2):
        with pytest.raises(KeyError):
            offers.without(gone)
    with pytest.raises(KeyError, match="6"):
        offers[6]
    assert 6 not in offers and "5" in repr(offers)


def test_every_kind_of_fact_has_its_transition() -> None:
    assert TRANSITIONS.keys() == set(EVENTS)
