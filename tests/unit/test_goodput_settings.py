"""The scenario: what may be set, and what a mistake is told."""

from __future__ import annotations

import pytest

from decodiloco.errors import ConfigInvalid
from replay.goodput.settings import Scenario, scenario_of


def test_settings_and_what_else_was_told_come_together() -> None:
    told = scenario_of(["costs.up_seconds=25", "failures.clock=wall"], {"cluster": {"chips": 512}})

    assert told.costs.up_seconds == 25.0
    assert told.failures.clock == "wall"
    assert (told.cluster.chips, told.cluster.learners) == (512, 8)


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("costs.up_second=25", "the nearest is costs.up_seconds"),
        ("up_seconds=25", "write it as"),
        ("costs.up_seconds", "write it as"),
        ("costs.up_seconds=-1", "costs.up_seconds: Input should be greater"),
        ("failures.mtbi_years=0", "failures.mtbi_years"),
        ("sync.quorum=9", "more than the 8 learners"),
        ("nothing.there=1", "no such setting"),
        ("failures.mtbi_years=inf", "failures.mtbi_years"),
        ("failures.mtbi_years=nan", "failures.mtbi_years"),
        ("failures.mtbi_years=1e-9", "failures in each step"),
    ],
)
def test_a_mistake_names_the_setting(setting: str, answer: str) -> None:
    with pytest.raises(ConfigInvalid, match=answer):
        scenario_of([setting], {})


def test_a_learner_has_at_least_one_slice() -> None:
    assert scenario_of([], {"cluster": {"chips": 8}}).slices() == 1
    assert Scenario().slices() == round(150_000 / 256)


def test_every_setting_says_what_it_is() -> None:
    for table in Scenario.model_fields.values():
        for name, field in type(table.get_default()).model_fields.items():
            assert (field.description or "").endswith("."), name
