"""`replay diff`: how far two tapes agree, where they part, what each syncer knew, what follows."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest

from decodiloco.opening import Opening
from replay.diff.fields import Changed, changed, told
from replay.diff.knowledge import knowledge_of
from replay.diff.merges import Merges
from replay.diff.report import report_lines, side_by_side, told_as_json
from replay.diff.walk import Comparison, Side, compare
from streams.codec import seal
from streams.envelope import Envelope, genesis
from streams.events import Event
from streams.frozen import replace
from streams.parts import LeftOut
from tests.builders import (
    RUN,
    closed,
    evaluated,
    joined,
    manifest,
    merged,
    offered,
    one_of_each,
    opened,
    round_opened,
    tape_of,
    took_over,
    window_closed,
)
from tests.desk import Desk

PLACES = ("a.tape", "b.tape")


def compared(
    one: Iterable[Envelope],
    other: Iterable[Envelope],
    opening: Opening | None = None,
    others: Opening | None = None,
) -> Comparison:
    return compare(Side(iter(one), opening, RUN), Side(iter(other), others or opening, RUN))


def lines(found: Comparison, merges_max: int = 3) -> list[str]:
    return list(report_lines(found, PLACES, merges_max))


def desk_with_two_offers() -> Desk:
    """Two learners have answered the first round, b with twice the tokens of a."""
    desk = Desk(quorum=1, learners_min=2)
    for name in "ab":
        desk.join(name)
    desk.open_round()
    desk.answer("a", 1)
    desk.answer("b", 1, tokens=800, tokens_trained=800)
    return desk


def merged_desk(left_out: bool = False) -> Desk:
    desk = desk_with_two_offers()
    desk.close_window(1)
    out = (LeftOut(position=6, reason="not finite: t000"),) if left_out else ()
    desk.merge(1, out)
    return desk


def rechained(tape: list[Envelope], position: int, event: Event) -> list[Envelope]:
    """The same tape with another fact at a position, and sound from there on."""
    again: list[Envelope] = []
    for envelope in tape:
        one = event if envelope.position == position else envelope.event
        previous = again[-1].digest if again else genesis(RUN)
        again.append(
            seal(
                envelope.position,
                previous,
                envelope.fence,
                envelope.writer,
                envelope.source,
                envelope.time_seconds,
                one,
            )
        )
    return again


def test_a_tape_agrees_with_itself() -> None:
    tape = tape_of(one_of_each())

    found = compared(tape, tape)

    assert (found.agrees, found.longer, found.parting) == (True, 0, None)
    assert found.agreed.position == len(tape)
    assert lines(found)[-1] == "and end there, both of them"


def test_a_recording_that_is_behind_agrees_as_far_as_it_goes() -> None:
    tape = tape_of(one_of_each())

    for one, other, names in ((tape, tape[:7], "AB"), (tape[:7], tape, "BA")):
        found = compared(one, other)
        assert found.agrees
        assert lines(found)[-2:] == [
            "both agree up to position 7 (00:00:07, step 0)",
            f"{names[0]} goes on for {len(tape) - 7} facts more; {names[1]} tells no more, and "
            "contradicts none of it",
        ]


def test_the_first_fact_that_differs_is_told_by_its_fields_and_by_what_the_syncer_knew() -> None:
    desk = desk_with_two_offers()
    offer = desk.tape[6].event
    spoilt = rechained(desk.tape, 7, offer.model_copy(update={"tokens": 900}))

    found = compared(desk.tape, spoilt, desk.opening)

    assert not found.agrees and found.parting is not None
    assert found.agreed.position == 6
    assert found.parting.changed == (Changed("tokens", "800", "900"),)
    told = lines(found)
    assert "they part at position 7" in told
    assert "-        7 00:00:07     0  b: r1 f0 on v0: 4 steps 800 tok loss 4.25" in told
    assert "+        7 00:00:07     0  b: r1 f0 on v0: 4 steps 900 tok loss 4.25" in told
    at = told.index("what both syncers knew before it:")
    known = [line.split(maxsplit=1)[0] for line in told[at + 1 : told.index("", at)]]
    assert known == ["run", "versions", "state", "r1", "a", "b"]
    assert "    r1            f0 for v1 open since 5, in: a @6" in told
    assert any("live, life 3, said 1, step 4, 400 tok, holds v0 0 0 0" in line for line in told)


def test_facts_of_two_kinds_are_not_compared_field_by_field() -> None:
    start = (opened(), took_over(), joined("a"))
    found = compared(tape_of((*start, round_opened(1))), tape_of((*start, evaluated())))

    assert found.parting is not None
    assert found.parting.changed == (Changed("kind", "round_opened", "evaluation_reported"),)
    assert found.parting.knew == (None, None)
    told = lines(found)
    assert "what each syncer knew is not told: no state can be folded from here" in told


def test_what_follows_names_contributions_exact_weights_and_digests() -> None:
    whole, without = merged_desk(), merged_desk(left_out=True)
    found = compared(whole.tape, without.tape, whole.opening)

    (pair,) = found.pairs
    assert pair.one is not None and pair.other is not None
    assert [share.weight for share in pair.one.shares] == [Fraction(1, 5), Fraction(4, 5)]
    assert [share.weight for share in pair.other.shares] == [Fraction(1)]
    assert pair.other.left_out == (("a", "not finite: t000"),)
    assert pair.differs == ("contributions", "weights", "deltas", "left out")
    told = lines(found)
    assert (
        "what follows: merges from there on: A 1, B 1; 0 of the 1 that both made are the same"
        in (told)
    )
    assert "f0 to v1: contributions, weights, deltas, left out" in told
    shares = [line for line in told if "weight" in line and line[:1] in "-+"]
    assert ["1/5 = 20.00 %" in shares[0], "4/5 = 80.00 %" in shares[1]] == [True, True]
    assert "weight 1/1 = 100.00 %" in shares[2]
    assert any(line.startswith("+   a left out") for line in told)


def test_a_merge_that_one_side_never_made_is_told_so() -> None:
    whole = merged_desk()
    waiting = desk_with_two_offers()
    waiting.write(evaluated())

    found = compared(whole.tape, waiting.tape, whole.opening)

    assert [pair.differs for pair in found.pairs] == [("made by one only",)]
    assert "+   merge       not made" in lines(found)
    told = told_as_json(found, 3)
    assert (told["merges_compared"], told["merges_same"]) == (0, 0)
    merges = told["merges"]
    assert isinstance(merges, list) and len(merges) == 1
    assert merges[0]["b"] is None and merges[0]["a"]["contributions"][0]["weight"] == "1/5"


def test_no_more_merges_are_told_than_were_asked_for() -> None:
    found = compared(merged_desk().tape, merged_desk(left_out=True).tape)

    assert lines(found, 0)[-1] == "and 1 more fragments part (--merges 1 shows all)"


def test_merges_beyond_those_that_are_held_are_counted_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("merges", "report"):
        monkeypatch.setattr(f"replay.diff.{module}.MERGES_MAX", 0)

    told = lines(compared(merged_desk().tape, merged_desk(left_out=True).tape))

    assert any("merges from there on: A 1, B 1;" in line for line in told)
    assert told[-1] == "of each side the first 0 were compared"


def test_two_runs_name_the_settings_and_tensors_in_which_they_differ() -> None:
    one, other = Desk(4), Desk(3, quorum=2)

    found = compared(one.tape, other.tape, one.opening, other.opening)

    assert (found.same_run, found.agrees) == (False, False)
    paths = [each.path for each in found.opening]
    assert paths[:3] == ["run.fragments", "run.inner_steps", "run.quorum"]
    assert "tensors.t003" in paths and "first fragments[3]" in paths
    told = lines(found)
    assert "two runs: these are not tapes of the same run; their openings differ" in told
    assert "    run.fragments: 4 -> 3" in told


def test_two_runs_of_one_config_agree_as_long_as_they_tell_the_same_facts() -> None:
    one = tape_of((opened(store="file:///one"), took_over(), joined("a"), joined("b")))
    other = tape_of((opened(store="file:///two"), took_over(), joined("a"), joined("c")))

    found = compared(one, other)

    assert found.opening == (Changed("run_opened.store", "file:///one", "file:///two"),)
    assert (found.agreed.position, found.parting is not None) == (3, True)
    told = lines(found)
    assert (
        "after the openings, both tell the same facts up to position 3 (00:00:03, step 0)" in told
    )


def test_where_one_opening_is_not_there_only_the_other_state_is_told() -> None:
    one, other = Desk(4), tape_of((opened(store="file:///two"), took_over("t")))

    told = lines(compare(Side(iter(one.tape), one.opening, RUN), Side(iter(other), None, RUN)))

    at = told.index("what each syncer knew before it:")
    assert told[at + 1].startswith("-   run           step 0")
    assert "    B's is not told: its state cannot be folded from here" in told


def test_two_runs_that_part_at_once_say_that_nothing_is_the_same() -> None:
    found = compared(
        tape_of((opened(store="file:///one"), took_over("s"))),
        tape_of((opened(store="file:///two"), took_over("t"))),
    )

    assert "nothing after the openings is the same" in lines(found)


def test_two_runs_opened_alike_at_two_times_are_still_two_runs() -> None:
    (one,) = tape_of((opened(),))
    other = seal(1, genesis(RUN), 0, "syncer-1", None, 9.0, opened())

    found = compared((one,), (other,))

    assert (found.same_run, found.opening) == (False, (Changed("time_seconds", "1.0", "9.0"),))


def test_a_tape_forked_under_another_fence_and_hour_says_so() -> None:
    tape = tape_of((opened(), took_over(), joined("a")))
    other = seal(3, tape[1].digest, 2, "syncer-2", None, 99.0, joined("a"))

    found = compared(tape, (*tape[:2], other))

    assert found.parting is not None
    assert [str(each) for each in found.parting.changed] == [
        "fence: 1 -> 2",
        "writer: syncer-1 -> syncer-2",
        "time_seconds: 3.0 -> 99.0",
    ]


def test_facts_that_do_not_follow_are_compared_and_only_the_states_stay_untold() -> None:
    opening = Desk().opening
    start = (opened(), took_over(), merged(7, contributions=(5,)))

    found = compared(tape_of((*start, joined("a"))), tape_of((*start, joined("b"))), opening)

    assert found.parting is not None
    assert (found.parting.one.position, found.parting.knew) == (4, (None, None))


def test_what_a_syncer_knows_names_closed_windows_and_the_end() -> None:
    desk = desk_with_two_offers()
    desk.close_window(1)

    known = knowledge_of(desk.state)

    assert known["r1"] == "f0 for v1 closed at 8 with a @6 b @7"
    assert known["run"] == "step 0, 1.2k tok trained, fence 1, led by syncer-1"
    ending = replace(desk.state, closing="asked", leader="")
    assert knowledge_of(ending)["run"] == "step 0, 1.2k tok trained, fence 1, closing: asked"
    over = replace(ending, closed=closed("steps"))
    assert knowledge_of(over)["run"].endswith("fence 1, closed: steps")


def test_a_learner_that_is_called_as_another_line_is_has_a_line_of_its_own() -> None:
    desk = Desk(2, learners_min=2)
    desk.join("run"), desk.join("r1")
    desk.open_round()
    desk.answer("run", 1), desk.answer("r1", 1)

    known = knowledge_of(desk.state)
    assert known["run"].startswith("step 0") and known["learner run"].startswith("live")
    assert known["r1"].startswith("f0 for v1") and known["learner r1"].startswith("live")


def test_an_offer_that_no_admission_lets_through_weighs_nothing() -> None:
    start = (opened(), took_over(), joined("a"), offered("a", inner_steps=0))

    found = compared(
        tape_of((*start, merged(contributions=(4,)))),
        tape_of((*start, merged(contributions=(4,), merge_seconds=0.5))),
    )

    (pair,) = found.pairs
    assert pair.one is not None and pair.one.shares[0].weight == 0
    assert (pair.differs, "0 of the 1" in lines(found)[-1]) == ((), False)
    assert lines(found)[-1].endswith("1 of the 1 that both made are the same")


def test_lines_that_are_alike_stand_once_and_others_one_under_the_other() -> None:
    assert list(side_by_side({"x": "1", "y": "2"}, {"x": "1", "y": "3", "z": "4"})) == [
        "    x  1",
        "-   y  2",
        "+   y  3",
        "+   z  4",
    ]


def test_offers_that_are_settled_are_not_remembered() -> None:
    merges = Merges(RUN)
    left = (LeftOut(position=5, reason="missing"),)
    facts: tuple[Event, ...] = (
        opened(), took_over(), joined("a"), *(offered(name) for name in "abc"),
        window_closed(offers=(4, 5), superseded=(6,)), merged(contributions=(4,), left_out=left),
    )  # fmt: skip

    for envelope in tape_of(facts):
        merges.tell(envelope)

    assert (merges.count, merges.offers, merges.found) == (1, {}, {})


def test_values_are_told_by_their_smallest_parts_that_differ() -> None:
    one, other = (
        offered("a"),
        offered("a", manifest=manifest("other", 9, "fp32"), loss=float("inf")),
    )

    assert [each.path for each in changed(one, other)] == [
        *("loss", "manifest.bytes", "manifest.digest", "manifest.codec"),
    ]
    assert list(changed((1, 2), (1, 2, 3), "offers")) == [Changed("offers[2]", "absent", "3")]
    assert list(changed({"a": 1}, {"a": 1.0})) == [Changed("a", "1", "1.0")]
    assert told((b"\x01\x02", "x", {"k": None})) == "[0102, x, {k None}]"
    assert told(b"") == "empty"
    assert told("y" * 200).endswith("y…")
