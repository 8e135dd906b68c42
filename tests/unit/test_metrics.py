"""What the exporter counts of a run: the same as the run's own state says, and nothing else."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from decodiloco.metrics.counted import REASONS_MAX, Counted, reason_class
from decodiloco.metrics.exporter import Page, listening_place
from decodiloco.metrics.families import BY_NAME, FAMILIES
from decodiloco.metrics.measures import LEARNER_STATES, Outlook, values_of
from decodiloco.metrics.tally import Histogram, Values
from decodiloco.syncer.state import Learner
from streams.errors import AskedWrongly
from streams.pulse import Beat
from streams.sizes import StreamSize
from tests.builders import (
    closed,
    closing,
    digest,
    evaluated,
    hardship,
    left,
    left_out,
    lost,
    message_refused,
    refused,
    took_over,
)
from tests.desk import Desk

HOME = StreamSize("IN_trial_home", "home", 20, 4000, 20, 10_000, 0)
TAPE = StreamSize("TAPE_trial", None, 50, 9000, 50, None, 1)


def outlook(*beats: Beat, streams: tuple[StreamSize, ...] = (), now: float = 0.0) -> Outlook:
    heard = {f"{beat.role}/{beat.speaker}": beat for beat in beats}
    return Outlook(now, True, heard, streams, ("0.1", "3.11"))


def counted_of(desk: Desk) -> Counted:
    counted = Counted(desk.opening)
    for envelope in desk.tape:
        counted.hear(envelope)
    assert counted.state == desk.state
    return counted


def run_of_two() -> Desk:
    """Round 1 is merged from a and b; round 2 is open, and nobody has answered."""
    desk = Desk(fragments=2, inner_steps=4, quorum=2)
    desk.join("a")
    desk.join("b")
    first = desk.open_round()
    desk.answer("a", first)
    desk.answer("b", first)
    desk.close_window(first)
    desk.merge(first)
    desk.open_round()
    return desk


def value(values: Values, name: str, *labels: str) -> float:
    return values[name][labels]


def test_a_merge_is_counted_with_its_learners_and_its_fragment() -> None:
    desk = run_of_two()
    values = values_of(counted_of(desk), outlook())
    assert value(values, "merges", "0") == value(values, "step") == 1
    assert value(values, "offers", "a") == value(values, "offers", "b") == 1
    assert value(values, "participation_ratio") == 1.0
    assert value(values, "fragment_version", "0") == 1
    assert value(values, "tokens_trained", "a") == desk.state.learners["a"].tokens_trained == 400
    assert value(values, "tokens_settled", "a", "merged") == 200  # of one fragment in two
    assert value(values, "facts", "delta_offered") == 2
    assert value(values, "learners", "live") == 2


def test_a_round_below_its_quorum_is_told_with_its_age() -> None:
    desk = run_of_two()
    values = values_of(counted_of(desk), outlook())
    assert value(values, "rounds_below_quorum") == 1
    assert value(values, "oldest_round_timestamp_seconds") == desk.tape[-1].time_seconds
    desk.answer("a", 2)
    desk.answer("b", 2)
    assert value(values_of(counted_of(desk), outlook()), "rounds_below_quorum") == 0


def test_refusals_are_told_by_their_first_words_only() -> None:
    desk = run_of_two()
    desk.write(refused("a", reason="old incarnation 5; 7 is the newest"))
    desk.write(refused("a", reason="old incarnation 6; 7 is the newest"))
    desk.write(message_refused(reason="the run is closed", count=7))
    values = values_of(counted_of(desk), outlook())
    assert values["offers_refused"] == {("a", "old incarnation"): 2}
    assert values["messages_refused"] == {("the run is closed",): 7}


def test_an_offer_left_out_is_counted_and_an_abandoned_merge_too() -> None:
    desk = Desk(fragments=2, inner_steps=4)
    desk.join("a")
    first = desk.open_round()
    desk.answer("a", first)
    desk.close_window(first)
    position = max(desk.state.offers)
    desk.abandon(first, (left_out(position, "not finite: t000"),))
    values = values_of(counted_of(desk), outlook())
    assert values["offers_left_out"] == {("not finite",): 1}
    assert value(values, "merges_abandoned") == 1


def test_strangers_cannot_make_labels_without_bound() -> None:
    desk = run_of_two()
    letters = "abcdefghij"
    for number in range(REASONS_MAX + 30):
        word = "".join(letters[int(digit)] for digit in str(number))
        desk.write(message_refused(reason=word, count=1))
    values = values_of(counted_of(desk), outlook())
    assert len(values["messages_refused"]) <= REASONS_MAX + 1
    assert value(values, "messages_refused", "other") >= 30
    assert sum(values["messages_refused"].values()) == REASONS_MAX + 30


def test_strangers_cannot_take_the_names_of_other_reasons() -> None:
    desk = run_of_two()
    for number in range(REASONS_MAX):
        word = "".join("abcdefghij"[int(digit)] for digit in str(number))
        desk.write(message_refused(reason=word, count=1))
    desk.write(refused("a", reason="too old: 3 versions behind"))
    assert values_of(counted_of(desk), outlook())["offers_refused"] == {("a", "too old"): 1}


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("too old: 3 versions behind", "too old"),
        ("grace ended", "grace ended"),
        ("kill-learner", "kill learner"),
        ("norm out of bounds: t000 3e9", "norm out of bounds"),
        ("7 of 9", "other"),
    ],
)
def test_a_reason_loses_its_particulars(reason: str, words: str) -> None:
    assert reason_class(reason) == words


def test_losses_takeovers_and_hardships_are_counted() -> None:
    desk = run_of_two()
    desk.write(lost("b", incarnation=desk.state.learners["b"].incarnation))
    desk.write(took_over("syncer-2", fence=2), fence=2)
    desk.write(hardship("kill -9"))
    desk.write(evaluated(3.5))
    desk.write(evaluated(3.0, said=2))
    desk.write(evaluated(3.2, said=3))
    values = values_of(counted_of(desk), outlook())
    assert value(values, "learners_lost", "b", "silent") == 1
    assert value(values, "learners", "lost") == 1
    assert value(values, "learners", "quarantined") == 0
    assert value(values, "syncer_takeovers") == value(values, "tape_fence") == 2
    assert value(values, "hardships_injected", "kill") == 1
    assert value(values, "evaluation_loss") == 3.2
    assert value(values, "evaluation_loss_best") == 3.0


def test_a_quarantined_learner_is_counted_as_such_and_as_live_once_it_has_joined_again() -> None:
    desk = run_of_two()
    life = desk.state.learners["b"].incarnation
    desk.write(
        lost("b", incarnation=life, reason="quarantined", silent_seconds=0.0, why="direction")
    )
    counted = counted_of(desk)
    values = values_of(counted, outlook())
    assert value(values, "learners_lost", "b", "quarantined") == 1
    states = {state: value(values, "learners", state) for state in LEARNER_STATES}
    assert states == {"live": 1, "left": 0, "lost": 0, "quarantined": 1}
    desk.join("b")
    values = values_of(counted_of(desk), outlook())
    assert (value(values, "learners", "live"), value(values, "learners", "quarantined")) == (2, 0)


def test_every_state_of_a_learner_is_counted() -> None:
    assert set(get_args(get_type_hints(Learner)["status"])) == set(LEARNER_STATES)


def test_a_leader_that_is_not_heard_leads_no_more() -> None:
    counted = counted_of(run_of_two())
    silent = values_of(counted, outlook())
    assert silent["syncer_is_leader"] == {("syncer-1",): 0.0}
    leads = Beat("syncer", "syncer-1", {"leading": 1, "position": 4})
    stands_by = Beat("syncer", "syncer-2", {"leading": 0, "position": 9})
    heard = values_of(counted, outlook(leads, stands_by, streams=(TAPE,)))
    assert heard["syncer_is_leader"] == {("syncer-1",): 1.0, ("syncer-2",): 0.0}
    assert heard["tape_lag_facts"] == {
        ("exporter",): 50 - counted.state.position,
        ("syncer/syncer-1",): 46,
        ("syncer/syncer-2",): 41,
    }


def test_mergers_are_told_while_they_are_heard() -> None:
    counted = counted_of(run_of_two())
    heard = values_of(
        counted,
        outlook(
            Beat("merger", "m2", {"working": 0, "merges": 4}),
            Beat("merger", "m1", {"working": 2, "merges": 7}),
        ),
    )
    assert heard["mergers"] == {(): 2}
    assert heard["merger_merges"] == {("m1",): 7, ("m2",): 4}
    assert heard["merger_working"] == {("m1",): 2, ("m2",): 0}
    silent = values_of(counted, outlook())
    assert (silent["mergers"], silent["merger_merges"]) == ({(): 0}, {})


def test_streams_tell_how_full_they_are_and_what_waits() -> None:
    desk = run_of_two()
    values = values_of(counted_of(desk), outlook(streams=(TAPE, HOME)))
    assert values["stream_bytes_max"] == {("IN_trial_home",): 10_000}
    assert value(values, "stream_bytes", "TAPE_trial") == 9000
    assert value(values, "stream_replicas_behind", "TAPE_trial") == 1
    assert value(values, "inbox_pending_messages", "home") == 20 - desk.sequence


def test_a_learner_that_ended_with_another_model_is_told() -> None:
    desk = run_of_two()
    desk.write(closing())
    desk.write(closed(step=desk.state.step, versions=desk.state.versions, digest=digest("model")))
    for name, model in (("a", "model"), ("b", "another")):
        life = desk.state.learners[name].incarnation
        desk.write(left(name, incarnation=life, reason="finished", digest=digest(model)))
    values = values_of(counted_of(desk), outlook())
    assert values["digests_differ"] == {("a",): 0.0, ("b",): 1.0}
    assert value(values, "closed") == 1


def test_whoever_folds_the_same_tape_again_tells_the_same() -> None:
    desk = run_of_two()
    first, again = counted_of(desk), counted_of(desk)
    assert values_of(first, outlook()) == values_of(again, outlook())
    assert first.tally.histograms == again.tally.histograms


def test_a_histogram_counts_a_value_at_its_bound_below_it() -> None:
    histogram = Histogram.empty((1.0, 2.0))
    for seen in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(seen)
    assert list(histogram.cumulative()) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.sum == 12.0


def test_the_page_is_what_prometheus_reads() -> None:
    counted = counted_of(run_of_two())
    page = Page("trial")
    page.renew(values_of(counted, outlook(streams=(TAPE, HOME))), counted.tally.histograms)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(page)
    told = {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    for name, family in told.items():
        assert family.documentation == BY_NAME[name.removeprefix("decodiloco_")].help
        assert all(sample.labels["run"] == "trial" for sample in family.samples)
    assert told["decodiloco_merges"].type == "counter"
    assert told["decodiloco_merge_seconds"].type == "histogram"
    assert {"decodiloco_step", "decodiloco_stream_bytes"} <= set(told)


def test_a_name_that_the_table_lacks_is_a_fault_of_ours() -> None:
    with pytest.raises(AssertionError, match="made_up"):
        Page("trial").renew({"made_up": {(): 1.0}}, {})


def test_no_two_families_have_one_name() -> None:
    assert len(BY_NAME) == len(FAMILIES)


@pytest.mark.parametrize("text", ["9464", "host", ":9464", "host:", "host:99999", "host:-1"])
def test_a_listening_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(AskedWrongly, match="HOST:PORT"):
        listening_place(text)


def test_a_listening_place_may_be_an_ipv6_address() -> None:
    assert listening_place("[::1]:9464") == ("::1", 9464)
