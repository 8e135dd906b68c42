"""The vocabulary: closed, frozen, and each fact for somebody."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from streams.events import (
    BY_KIND,
    EVENTS,
    LEARNER_EVENTS,
    WORDS,
    Event,
    Fact,
    RunEvent,
    learner_of,
    speaker_of,
)
from tests.builders import (
    checkpointed,
    closing,
    evaluated,
    hardship,
    joined,
    left,
    lost,
    merged,
    offered,
    one_of_each,
    refused,
)


def test_the_union_holds_every_fact_there_is() -> None:
    assert set(EVENTS) == set(Fact.__subclasses__())
    assert set(EVENTS) == set(LEARNER_EVENTS) | set(get_args(RunEvent))
    assert set(WORDS) <= set(EVENTS)


def test_the_builders_make_one_of_each() -> None:
    assert {type(event) for event in one_of_each()} == set(EVENTS)


def test_a_kind_is_the_name_of_its_class_in_small_letters() -> None:
    for kind, event in BY_KIND.items():
        assert kind.replace("_", "") == event.__name__.lower()


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.kind)
def test_a_fact_cannot_be_changed(event: Event) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(event, next(iter(type(event).model_fields)), 0)


def test_a_learners_facts_are_for_that_learner_and_the_rest_for_all() -> None:
    for event in (joined("b"), left("b"), lost("b"), offered("b"), refused("b")):
        assert learner_of(event) == "b"
    for event in (merged(), checkpointed("b"), evaluated(), closing()):
        assert learner_of(event) is None


def test_every_word_names_its_speaker() -> None:
    for word in (joined("b"), left("b"), offered("b"), checkpointed("b")):
        assert speaker_of(word) == "b"
    assert speaker_of(evaluated(speaker="judge")) == "judge"
    assert speaker_of(hardship()) == "injector"
    assert speaker_of(closing()) == "operator"


@pytest.mark.parametrize("name", ["", "A", "a.b", "a b", "a\n", "-a", "ä", "a" * 49, ">", "*"])
def test_an_id_that_could_break_out_of_a_subject_is_no_id(name: str) -> None:
    with pytest.raises(ValidationError):
        joined(name)


@pytest.mark.parametrize(
    "fields",
    [
        {"cursor": b"x" * 1025},
        {"incarnation": 2**53 + 1},
        {"learner_step": 2**63},
        {"step_seconds": -1.0},
        {"upload_seconds": float("nan")},
        {"adopted": ({"fragment": 0},)},
    ],
)
def test_an_offer_beyond_its_bounds_is_no_offer(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        offered(**fields)
