"""What the learners of a tape did, step by step, as its words tell it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decodiloco.config import Run
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.learner.state import RunClock
from decodiloco.opening import Opening
from replay.errors import Differs
from replay.retrain.compare import Distance, differences, distance, threads_of
from replay.retrain.lives import Batching, Writing
from replay.retrain.outcome import Rerun, Row, Tally
from replay.retrain.report import report_lines, told_as_json, verdict
from replay.retrain.script import Script, read_script
from streams.events import Event
from streams.parts import Moments
from tests.builders import (
    abandoned,
    adopted,
    checkpointed,
    joined,
    left,
    left_out,
    manifest,
    merged,
    offered,
    opened,
    refused,
    round_opened,
    tape_of,
    took_over,
)

TENSORS = tuple(
    Tensor(name=f"t{fragment}", shape=(2,), dtype="float32", fragment=fragment, rule="mean")
    for fragment in range(2)
)


def script_of(*events: Event, carry: bool = False, learners: tuple[str, ...] = ()) -> Script:
    """The script of a tape whose first two facts are an opening and a takeover."""
    run = Run.model_validate({"name": "trial", "fragments": 2, "adoption": {"carry": carry}})
    opening = Opening(run, Layout(fragments=2, tensors=TENSORS), (manifest("f0"), manifest("f1")))
    return read_script(tape_of([opened(), took_over(), *events]), opening, learners)


def first(**fields: object) -> Event:
    """The first life, which begins at position 3."""
    return joined(versions=(0, 0), **fields)


def test_a_life_offers_adopts_and_stores_at_the_steps_that_its_words_tell():
    script = script_of(
        first(),
        round_opened(tokens=70),
        offered(),
        merged(contributions=[5]),
        checkpointed(learner_step=6),
        offered(
            round=1, fragment=1, learner_step=7, inner_steps=7, tokens=700,
            adopted=(adopted(learner_step=5, tokens_trained=500),),
        ),
        merged(round=1, fragment=1, contributions=[8]),
    )  # fmt: skip

    life = script.lives[3]
    assert sorted(life.boundaries) == [4, 5, 6, 7]
    assert list(life.boundaries[4].offers) == [5] and list(life.boundaries[7].offers) == [8]
    assert life.boundaries[5].adoptions == [Writing(0, 1)]
    assert life.boundaries[6].checkpoint is not None and life.boundaries[6].checkpoint[0] == 7
    assert (life.last_step, life.last_position) == (7, 8)
    assert life.counts == {0: 0, 4: 400, 5: 500, 7: 700}
    assert script.clock(0, 1) == RunClock(1, 70) and script.clock(0, 0) == RunClock(0, 0)
    assert script.merged_at == {5: 6, 8: 9}
    assert script.uses == {(0, 0): 1, (1, 0): 1, (0, 1): 1}


def test_what_comes_after_the_last_step_that_is_seen_again_is_not_done():
    script = script_of(
        first(), round_opened(), offered(), merged(), left(adopted=(adopted(learner_step=8),))
    )

    life = script.lives[3]
    assert life.last_step == 4
    assert life.boundaries[8].adoptions == [] and script.uses[0, 1] == 0


def test_a_life_without_a_word_writes_nothing_into_a_model():
    script = script_of(first(), joined("b", versions=(0, 0)))

    assert [life.learner for life in script.lives.values()] == ["a", "b"]
    assert not script.uses


def test_only_the_learners_that_are_asked_for_are_scripted():
    script = script_of(first(), joined("b", versions=(0, 0)), learners=("b",))

    assert [life.learner for life in script.lives.values()] == ["b"]


def test_an_adoption_that_no_word_told_is_known_from_the_next_offer():
    script = script_of(
        first(),
        round_opened(),
        offered(),
        merged(),
        round_opened(round=2, version=2),
        offered(round=2, base_version=1, learner_step=9, inner_steps=3, tokens_trained=900),
    )

    assert script.lives[3].boundaries[6].adoptions == [Writing(0, 1)]


def test_a_word_of_a_life_that_never_began_is_a_difference():
    with pytest.raises(Differs, match="position 3: a word of learner a in a life that began at 3"):
        script_of(offered())


def test_a_word_in_the_life_of_another_learner_is_a_difference():
    with pytest.raises(Differs, match="position 4: a word of learner b in a life that began at 3"):
        script_of(first(), checkpointed("b"))


@pytest.mark.parametrize(
    "lie", [{"tokens": 0}, {"inner_steps": 0}, {"learner_step": 2, "inner_steps": 1}]
)
def test_an_offer_that_no_life_can_have_made_is_a_difference(lie: dict[str, int]):
    with pytest.raises(Differs, match=r"position 4: .*of a life that began at step 2"):
        script_of(first(learner_step=2, tokens_trained=200), offered(**lie))


@pytest.mark.parametrize("verdict", ["left out", "abandoned", "refused"])
def test_after_a_verdict_of_not_finite_every_fragment_is_written_and_the_moments_are_zeroed(
    verdict,
):
    spoilt = left_out(5, "not finite: t0")
    told = {
        "left out": merged(contributions=[], left_out=(spoilt,)),
        "abandoned": abandoned(left_out=(spoilt,)),
        "refused": refused(reason="not finite: the loss"),
    }[verdict]
    healing = tuple(
        adopted(fragment, version, learner_step=6, tokens_trained=600)
        for fragment, version in ((0, 1), (1, 0))
    )
    script = script_of(
        first(),
        round_opened(),
        offered(),
        told,
        offered(learner_step=8, inner_steps=2, base_version=1, adopted=healing),
    )

    boundaries = script.lives[3].boundaries
    assert boundaries[6].heals and boundaries[6].adoptions == [Writing(0, 1), Writing(1, 0)]
    assert not any(boundary.heals for step, boundary in boundaries.items() if step != 6)


def test_under_carry_an_adoption_knows_which_of_our_copies_is_in_it():
    script = script_of(
        first(),
        round_opened(),
        offered(),
        merged(),
        round_opened(round=2, version=2),
        offered(
            round=2, base_version=1, learner_step=9, inner_steps=5, tokens_trained=900,
            adopted=(adopted(learner_step=6, tokens_trained=600),),
        ),
        merged(round=2, version=2, contributions=[]),
        offered(
            round=4, base_version=2, learner_step=12, inner_steps=8, tokens_trained=1200,
            adopted=(adopted(version=2, learner_step=10, tokens_trained=1000),),
        ),
        carry=True,
    )  # fmt: skip

    boundaries = script.lives[3].boundaries
    assert boundaries[6].adoptions == [Writing(0, 1, merged_step=4)]
    assert boundaries[10].adoptions == [Writing(0, 2, merged_step=None)]


def moments_at(source: str, age_steps: int, seen: int, *before: Event) -> int:
    """Where the moments of a life come from that begins after these facts."""
    own = joined(
        versions=(0, 0),
        seen=seen,
        moments=Moments(source=source, age_steps=age_steps),
    )
    script = script_of(first(), joined("b", versions=(0, 0)), *before, own)
    return script.lives[3 + 1 + len(before) + 1].moments_at


def test_moments_come_from_the_newest_checkpoint_of_the_same_learner():
    before = (checkpointed(), checkpointed(learner_step=6, step=2))

    assert moments_at("own", 0, 6, *before) == 6


def test_moments_are_those_that_were_there_when_they_were_taken():
    """A checkpoint that came between taking them and joining has another age."""
    before = (
        checkpointed("b", incarnation=4, step=0),
        merged(contributions=[]),
        checkpointed("b", incarnation=4, learner_step=6, step=1),
    )

    assert moments_at("borrowed", 1, 7, *before) == 5
    assert moments_at("borrowed", 0, 7, *before) == 7
    assert moments_at("zero", 0, 7, *before) == 0


def test_moments_that_nothing_on_the_tape_explains_are_a_difference():
    with pytest.raises(Differs, match="took own moments of an age of 3 steps"):
        moments_at("own", 3, 5, checkpointed())


def test_a_constant_batch_comes_out_constant_and_another_is_spread_evenly():
    constant, uneven = Batching({0: 0, 4: 64}, 8, 4), Batching({0: 0, 4: 56}, 8, 4)

    assert [constant.sequences(step) for step in range(1, 7)] == [2, 2, 2, 2, 4, 4]
    assert [uneven.sequences(step) for step in range(1, 5)] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("tokens", "why"), [(63, "no whole sequences of 8"), (256, "took 8 sequences, of a batch of 4")]
)
def test_tokens_that_are_no_batches_of_this_run_are_refused(tokens, why):
    with pytest.raises(ValueError, match=why):
        Batching({0: 0, 4: tokens}, 8, 4).sequences(1)


def test_fingerprints_are_told_apart_by_field():
    theirs = "x86_64, Linux, torch 2.1, threads 2"

    assert differences(theirs, theirs) == ()
    assert differences("arm64, Linux, torch 2.1, threads 2, rules 1", theirs) == (
        "machine x86_64 there, arm64 here",
        "rules unknown there, 1 here",
    )
    assert (threads_of(theirs), threads_of("test")) == (2, None)


def test_a_distance_is_relative_to_the_stored_delta():
    one = {"t": np.array([3.0, 4.0], np.float32)}
    other = {"t": np.array([3.0, 0.0], np.float32)}
    nothing = {"t": np.zeros(2, np.float32)}

    assert distance(one, one) == Distance(0.0, 1.0)
    assert distance(one, other) == Distance(pytest.approx(4 / 3), pytest.approx(0.6))
    assert distance(nothing, nothing).relative == 0.0
    assert distance(one, nothing).relative == math.inf


def test_a_report_tells_what_was_missed_and_what_was_taken_as_stored():
    row = Row("a", 3, deltas=Tally(5, 4, 1), checkpoints=Tally(2, 2), random_only=1)
    row.distances.append(Distance(0.25, 0.5))
    found = Rerun("trial", rows={3: row}, others=2, stored_taken=1)

    assert not found.ok
    assert verdict(found).startswith("DIFFERS, and 1 of the tape's blobs could not be read")
    lines = "\n".join(report_lines(found))
    assert "1 checkpoints are identical but for random states" in lines
    assert "2 deltas of learners not trained again" in lines
    assert "is this its own? (--data)" in lines
    found.text_told = True
    assert "is this its own?" not in "\n".join(report_lines(found))
    assert "2.50e-01 of their norm away (cosine 0.500000)" in lines
    assert told_as_json(found, 1.0)["loss_first"] is None
