"""A late copy of the word with which an older life joined ends no life that is well."""

from __future__ import annotations

from decodiloco.syncer.admission import Admitted, Ignored
from tests.builders import digest, joined
from tests.desk import Desk

FIRST, SECOND, THIRD = (digest(f"life {number}")[:16] for number in range(3))


def test_a_join_word_of_an_earlier_life_that_comes_again_is_ignored() -> None:
    desk = Desk()
    desk.join("a", nonce=FIRST, seen=1)
    newest = desk.join("a", nonce=SECOND)
    again = joined("a", nonce=FIRST, seen=1, layout_digest=desk.opening.layout.digest)
    assert desk.say(again) == Ignored("said before the newest life of this learner began")
    assert desk.state.learners["a"].incarnation == newest


def test_a_joiner_that_has_seen_the_newest_life_succeeds_it() -> None:
    desk = Desk()
    first = desk.join("a", nonce=FIRST)
    word = joined(
        "a", nonce=THIRD, seen=first, layout_digest=desk.opening.layout.digest, versions=(0,) * 4
    )
    assert isinstance(desk.say(word), Admitted)
    assert desk.state.learners["a"].incarnation > first
