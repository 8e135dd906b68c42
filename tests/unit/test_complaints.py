"""A learner hears why its words were not admitted, so that it can say so while it waits."""

from __future__ import annotations

from decodiloco.learner.machine import begin, fold
from decodiloco.syncer.admission import Unreadable
from tests.builders import joined, message_refused, opened, tape_of, took_over
from tests.desk import Desk, opening_of


def test_a_learner_knows_the_complaint_that_admission_made_about_it() -> None:
    desk = Desk()
    desk.join("a")
    verdict = desk.say(joined("b", layout_digest=b"\0" * 32))
    assert isinstance(verdict, Unreadable)
    facts = (opened(), took_over(), message_refused(verdict.subject, reason=verdict.reason))
    told = {}
    for name in ("a", "b", "home"):
        state = begin(opening_of(), name)
        for envelope in tape_of(facts):
            state = fold(state, envelope)
        told[name] = state.complaint
    assert told == {"a": "", "b": "the model's layout is not the run's", "home": ""}
