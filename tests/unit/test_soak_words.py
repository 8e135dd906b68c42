"""When an acknowledged word is lost: the tape against the publishers' journals."""

from __future__ import annotations

from pathlib import Path

from streams.envelope import Envelope, Source
from streams.events import Event
from tests.builders import checkpointed, closed, hardship, joined, left, offered, refused, sealed
from tests.chaos.soak.checks import Heard, appends_of, words_lost, words_of
from tests.chaos.soak.journal import Journal, identity_of


def tape_of(*said: tuple[int, Event]) -> list[Envelope]:
    """Facts at positions 1, 2 ..., each from a letter of this sequence; 0 is no letter."""
    return [
        sealed(event, position, Source("home", "life", sequence) if sequence else None)
        for position, (sequence, event) in enumerate(said, 1)
    ]


def heard(sequence: int, word: Event, seen: int = 0) -> Heard:
    told = identity_of(word)  # type: ignore[arg-type]
    life = told.get("nonce", told.get("life"))
    identity = (told["kind"], told["speaker"], life, told.get("said"))
    return Heard(identity, ((sequence, seen),))


def test_a_word_that_stands_on_the_tape_is_not_lost() -> None:
    offer = offered("a", incarnation=1, said=1)
    assert words_lost([heard(5, offer)], tape_of((1, joined("a")), (5, offer))) == ([], [])


def test_a_word_that_stands_nowhere_is_lost() -> None:
    offer, next_one = (offered("a", incarnation=1, said=said) for said in (1, 2))
    lost, _ = words_lost([heard(5, offer)], tape_of((1, joined("a")), (6, next_one)))
    assert lost == ["('delta_offered', 'a', 1, 1) in letters ((5, 0),)"]


def test_a_refusal_is_a_fate_too() -> None:
    tape = tape_of((1, joined("a")), (5, refused("a", incarnation=1, said=1)))
    assert words_lost([heard(5, offered("a", incarnation=1, said=1))], tape) == ([], [])


def test_words_of_a_life_are_void_behind_its_successors_join_and_only_there() -> None:
    again = joined("a", nonce=bytes(16), seen=1)
    tape = tape_of((1, joined("a")), (7, again))
    late, early = (heard(letter, checkpointed("a", incarnation=1, said=3)) for letter in (8, 6))
    assert words_lost([late], tape) == ([], [])
    assert len(words_lost([early], tape)[0]) == 1


def test_a_join_that_had_seen_the_newest_life_is_not_void() -> None:
    tape = tape_of((1, joined("a")))
    again = joined("a", nonce=bytes(16))
    assert words_lost([heard(9, again, seen=0)], tape) == ([], [])
    assert len(words_lost([heard(9, again, seen=1)], tape)[0]) == 1


def test_behind_the_close_only_a_farewell_is_still_heard() -> None:
    tape = tape_of((1, joined("a")), (0, closed()))
    offer, farewell = offered("a", incarnation=1, said=4), left("a", incarnation=1, said=5)
    assert words_lost([heard(9, offer)], tape) == ([], [])
    assert len(words_lost([heard(9, farewell)], tape)[0]) == 1


def test_a_hardship_that_was_said_must_stand() -> None:
    assert len(words_lost([heard(3, hardship())], tape_of((1, joined("a"))))[0]) == 1


def test_a_word_that_stands_twice_is_told() -> None:
    offer = offered("a", incarnation=1, said=1)
    _, twice = words_lost([], tape_of((1, joined("a")), (5, offer), (6, offer)))
    assert twice == ["('delta_offered', 'a', 1, 1) at 2 and 3"]


def test_a_late_copy_of_an_old_lifes_word_is_recorded_as_refused_and_is_no_second_one() -> None:
    offer = offered("a", incarnation=1, said=1)
    late = refused("a", incarnation=1, said=1, reason="old incarnation 1; 4 is the newest")
    tape = tape_of((1, joined("a")), (5, offer), (6, late))
    assert words_lost([heard(5, offer)], tape) == ([], [])


def test_journals_are_read_as_they_were_written_without_a_torn_line(tmp_path: Path) -> None:
    words = Journal(tmp_path / "journals" / "inbox-a.jsonl")
    join, offer = joined("a", seen=4), offered("a", incarnation=1, said=1)
    for sequence, word in ((3, join), (5, offer), (9, offer)):
        words.note(acknowledged=sequence, **identity_of(word))  # type: ignore[arg-type]
    with (tmp_path / "journals" / "inbox-a.jsonl").open("ab") as torn:
        torn.write(b'{"acknowledged": 12, "ki')
    assert words_of(tmp_path) == [
        Heard(("delta_offered", "a", 1, 1), ((5, 0), (9, 0))),
        Heard(("learner_joined", "a", join.nonce.hex(), None), ((3, 4),)),
    ]

    appends = Journal(tmp_path / "journals" / "tape-s.jsonl")
    appends.note(attempted=[("aa", 2), ("bb", 3)])
    appends.note(acknowledged=[("aa", 2)])
    assert appends_of(tmp_path) == ({b"\xaa": 2, b"\xbb": 3}, {b"\xaa": 2})
