"""What strangers write is shown without doing more than print."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from decodiloco.merge.gates import reason
from decodiloco.syncer.admission import Unreadable, admit
from replay.show import Teller, Wanted, Widths, plain
from streams.envelope import Source
from streams.inbox import Letter
from streams.printing import first_fault, printable, printable_lines, shown
from streams.pulse import Beat, decode_beat
from tests.builders import hardship, tape_of
from tests.desk import Desk

STRANGE = {
    "a cursor that moves": ("\x1b[2Jgone", "\\x1b[2Jgone"),
    "a second line": ("one\nrun is closed", "one\\nrun is closed"),
    "a turned direction": ("\u202eabc", "\\u202eabc"),
    "a mark of no width": ("a\ufeffb", "a\\ufeffb"),
    "half a pair": ("\ud800", "\\ud800"),
    "an end of text": ("a\x00b", "a\\x00b"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_stranger_text_only_prints(what: str) -> None:
    text, told = STRANGE[what]
    assert printable(text) == told and told.isprintable()
    assert shown(text).isprintable()
    assert reason("wrong tensors", text).isprintable()
    letter = Letter(Source("home", "life", 1), text, text, b"\xc1")
    verdict = admit(Desk().state, letter)
    assert isinstance(verdict, Unreadable) and verdict.subject.isprintable()
    target = text.encode("utf-8", "replace").decode()  # a fact holds no half pair
    (line,) = Teller(Wanted()).lines(tape_of([hardship(target=target)]))
    assert plain(line, (), Widths()).isprintable()
    assert Beat("learner", "a", {"waiting": text}).text("waiting") == told


def test_plain_text_stays_as_it_is() -> None:
    assert printable("learner a: größer 💣") == "learner a: größer 💣"
    assert printable_lines("one\ntwo\x1b") == "one\ntwo\\x1b"
    assert shown("x" * 99) == f"'{'x' * 40}'"


class Small(BaseModel):
    count: int


def test_of_several_faults_the_first_is_told_in_one_line() -> None:
    with pytest.raises(ValidationError) as caught:
        Small.model_validate({"count": "\n"})
    assert first_fault(caught.value).startswith("count: Input should be a valid integer")
    assert first_fault(ValueError("a\nb")) == "a\\nb"
    with pytest.raises(ValidationError) as caught:
        Small.model_validate(7)
    assert first_fault(caught.value).startswith("Input should be")


LIES: tuple[object, ...] = ("x", "", -1, 2**60, -0.5, 1e300, float("nan"), float("inf"))


@pytest.mark.parametrize("lie", LIES)
def test_a_heartbeat_that_lies_tells_nothing_that_cannot_be(lie: object) -> None:
    beat = Beat("learner", "a", {"learner_step": lie, "step_seconds": lie, "waiting": lie})
    assert 0 <= beat.count("learner_step") <= 2**53
    assert 0.0 <= beat.seconds("step_seconds") <= 24 * 3600
    assert isinstance(beat.text("waiting"), str)
    assert (beat.number("learner_step") is None) == isinstance(lie, str)
    assert beat.count("none") == beat.seconds("none") == 0 and beat.number("none") is None


@pytest.mark.parametrize("speaker", ["", "A", "a.b", "..", "a" * 49, "\x1b", "ä"])
def test_a_heartbeat_under_what_is_no_name_is_none(speaker: str) -> None:
    assert decode_beat("learner", speaker, b"\x80") is None
    assert decode_beat("learner", "a", b"\x80") == Beat("learner", "a", {})
