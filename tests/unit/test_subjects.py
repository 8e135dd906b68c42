"""Names of streams and subjects: from checked ids only."""

from __future__ import annotations

import pytest

from streams import subjects
from streams.errors import BadName
from tests.builders import joined, merged, offered


def test_a_learners_facts_lie_under_its_own_subject() -> None:
    assert subjects.tape_subject("r1", offered("a")) == "tape.r1.learner.a.delta_offered"
    assert subjects.tape_subject("r1", merged()) == "tape.r1.run.fragment_merged"


def test_streams_and_the_other_subjects_are_named_after_the_run() -> None:
    assert subjects.tape_stream("r1") == "TAPE_r1"
    assert subjects.inbox_stream("r1", "home") == "IN_r1_home"
    assert subjects.inbox_subject("r1", "home", "a", joined()) == "in.r1.home.a.learner_joined"
    assert subjects.pulse_subject("r1", "learner", "a") == "pulse.r1.learner.a"
    assert subjects.merge_subject("r1", "m1") == "merge.r1.m1"


def test_a_follower_reads_all_or_what_one_learner_needs() -> None:
    assert subjects.tape_filters("r1", None) == ["tape.r1.>"]
    assert subjects.tape_filters("r1", "a") == ["tape.r1.run.>", "tape.r1.learner.a.>"]


@pytest.mark.parametrize("name", ["", "A", "a.b", "*", ">", "a b", "a\n", "-a", "_a", "a" * 49])
def test_an_id_that_may_not_stand_in_a_subject_is_refused(name: str) -> None:
    with pytest.raises(BadName, match="use 1 to 48 of a-z"):
        subjects.checked(name, "run")
    for make in (
        lambda: subjects.tape_stream(name),
        lambda: subjects.inbox_stream("r1", name),
        lambda: subjects.tape_filters("r1", name),
        lambda: subjects.pulse_subject("r1", "learner", name),
        lambda: subjects.merge_subject("r1", name),
        lambda: subjects.inbox_subject("r1", "home", name, joined()),
    ):
        with pytest.raises(BadName):
            make()
