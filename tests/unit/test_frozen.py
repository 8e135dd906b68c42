"""Frozen values changed: the same as `dataclasses.replace` makes, whatever the class."""

from __future__ import annotations

import dataclasses

import pytest

from decodiloco.learner.machine import begin as begin_learner
from decodiloco.syncer.fates import Account, Span
from decodiloco.syncer.machine import begin
from decodiloco.syncer.state import Merged, Round
from streams.frozen import made, replace
from tests.builders import manifest
from tests.desk import opening_of

VALUES = {
    "syncer": (begin(opening_of(4)), {"step": 3, "rules": 2}),
    "learner": (begin_learner(opening_of(4), "a"), {"position": 5}),
    "account": (Account(), {"spans": (Span(0, 1),)}),
    "span": (Span(0, 9, offer=4), {"offer": 0, "gone": "merged"}),
    "round": (Round(1, 0, 1, 4, 2.0), {"offers": (7, 8), "closed_at": 9}),
    "merged": (Merged(0, manifest("x")), {}),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_changed_as_the_standard_library_changes_it(name: str) -> None:
    value, changes = VALUES[name]
    before = dataclasses.asdict(value)
    made = replace(value, **changes)
    assert made == dataclasses.replace(value, **changes) and type(made) is type(value)
    assert dataclasses.asdict(value) == before


def test_a_field_that_is_not_there_cannot_be_changed() -> None:
    with pytest.raises(TypeError, match="ende"):
        replace(Span(0, 1), ende=2)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_made_as_its_class_makes_it(name: str) -> None:
    value, _ = VALUES[name]
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    assert made(type(value), **fields) == value


def test_a_value_cannot_be_made_without_a_field() -> None:
    with pytest.raises(TypeError, match="offer"):
        made(Span, begin=0, end=1)
