"""`replay verify` judges again what the syncer judged: deltas, words, windows, evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from decodiloco.merge.fragment import MergeOrder, merge_fragment
from decodiloco.store.blobs import BlobStore
from decodiloco.store.open_store import open_store
from decodiloco.syncer.drafting import LEFT_OUT_MAX
from replay.errors import Differs
from replay.fact_bytes import abandoned_again, fit_to_judge, merged_again
from replay.verify import Proof
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    EvaluationReported,
    Event,
    FragmentMerged,
    LearnerJoined,
    MergeAbandoned,
    RoundOpened,
    RunClosing,
    SnapshotStored,
    WindowClosed,
)
from streams.parts import LeftOut
from tests.builders import abandoned, evaluated, merged
from tests.merge_orders import FragmentBench
from tests.real_run import RealRun
from tests.unit.test_merge_fragment import DELTAS, UNFIT
from tests.unit.test_replay_verify import first, rewritten, verified, with_fields

POSITION = 40


def judged_by_the_syncer(bench: FragmentBench, order: MergeOrder) -> FragmentMerged:
    """The fact of a merge that was carried out, its blobs stored."""
    made = merge_fragment(order, bench.store, sleep=lambda seconds: None)
    for key, parts in made.blobs(order):
        bench.store.put(key, parts)
    return merged(
        contributions=made.contributions,
        left_out=made.left_out,
        parameters=made.parameters.manifest,
        momentum=made.momentum.manifest,
        report=made.report.manifest,
        outer_gradient_norm=made.outer_gradient_norm,
    )


def judged_anew(order: MergeOrder, event: FragmentMerged | MergeAbandoned) -> MergeOrder:
    """The order with the offers that a proof judges again."""
    members = event.contributions if isinstance(event, FragmentMerged) else ()
    chosen = (*members, *fit_to_judge(event.left_out))
    kept = tuple(one for one in order.contributions if one.position in chosen)
    return replace(order, contributions=kept)


def with_reason(event: FragmentMerged, reason: str) -> FragmentMerged:
    left_out = tuple(each.model_copy(update={"reason": reason}) for each in event.left_out)
    return event.model_copy(update={"left_out": left_out})


@pytest.mark.parametrize("fault", UNFIT)
def test_an_unfit_delta_is_found_unfit_again_for_the_same_reason(fault: str) -> None:
    bench = FragmentBench(f"again-{list(UNFIT).index(fault)}")
    order = bench.order({**DELTAS, "b": UNFIT[fault][0]}, quorum=2)
    event = judged_by_the_syncer(bench, order)

    assert merged_again(bench.store, judged_anew(order, event), event, POSITION) > 0

    told = with_reason(event, "not finite: another tensor")
    with pytest.raises(Differs, match="leaves out the offer at 12: not finite: another") as caught:
        merged_again(bench.store, judged_anew(order, told), told, POSITION)
    assert caught.value.position == POSITION


def test_a_sound_delta_that_the_tape_calls_unfit_is_found_out() -> None:
    bench = FragmentBench("again-sound")
    order = bench.order(DELTAS, quorum=2)
    fewer = replace(order, contributions=order.contributions[:2])
    event = judged_by_the_syncer(bench, fewer)
    event = event.model_copy(
        update={"left_out": (LeftOut(position=13, reason="not finite: bias"),)}
    )

    with pytest.raises(Differs, match="at 13: not finite: bias; made again, its bytes pass"):
        merged_again(bench.store, judged_anew(order, event), event, POSITION)


@pytest.mark.parametrize("reason", ["missing", "corrupt: chunk 0", "unreachable: no answer"])
def test_what_the_store_did_not_give_then_is_not_asked_for_again(reason: str) -> None:
    bench = FragmentBench(f"again-{reason.split(':')[0]}")
    order = bench.order(DELTAS, quorum=2)
    event = judged_by_the_syncer(bench, replace(order, contributions=order.contributions[:2]))
    event = event.model_copy(update={"left_out": (LeftOut(position=13, reason=reason),)})

    assert merged_again(bench.store, judged_anew(order, event), event, POSITION) > 0


def test_the_offers_of_an_abandoned_merge_are_judged_again() -> None:
    bench = FragmentBench("again-abandoned")
    liar, _ = UNFIT["a lie in the last tensor"]
    order = bench.order({**DELTAS, "b": liar}, quorum=3)
    made = merge_fragment(order, bench.store)
    event = abandoned(left_out=made.left_out)
    sound = abandoned(left_out=(LeftOut(position=13, reason="lying header: bias"),))

    assert abandoned_again(bench.store, order, event, POSITION) == 0
    with pytest.raises(Differs, match="at 13: lying header: bias; made again, its bytes pass"):
        abandoned_again(bench.store, order, sound, POSITION)


def test_of_more_unfit_offers_than_a_fact_can_tell_the_first_are_judged_again() -> None:
    bench = FragmentBench("again-full")
    unfit, _ = UNFIT["another shape"]
    names = [f"l{place:02}" for place in range(LEFT_OUT_MAX + 2)]
    order = bench.order({**dict.fromkeys(names, unfit), **DELTAS})
    gone = next(one for one in order.contributions if one.learner == names[3])
    bench.store.delete(gone.key)
    made = merge_fragment(order, bench.store)
    event = abandoned(left_out=made.left_out[:LEFT_OUT_MAX])
    assert {each.reason.split(":")[0] for each in event.left_out} == {"missing", "wrong shape"}

    judged = tuple(one for one in order.contributions if one is not gone)
    again = replace(order, contributions=judged)
    assert abandoned_again(bench.store, again, event, POSITION) == 0
    hidden = abandoned(left_out=made.left_out[1 : LEFT_OUT_MAX + 1])
    with pytest.raises(Differs, match="made again, the merge leaves out the offer at 14"):
        abandoned_again(bench.store, again, hidden, POSITION)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that nobody touched."""
    folder = tmp_path_factory.mktemp("judged")
    store: BlobStore = open_store((folder / "store").as_uri())
    return RealRun(store, steps=5).play()


def evaluation(run: RealRun, step: int, **fields: object) -> Event:
    """A true report of the model at a step, but for `fields`."""
    made = [each.event for each in run.tape if isinstance(each.event, FragmentMerged)]
    versions = [0] * len(run.opening.fragments)
    for merge in made[:step]:
        versions[merge.fragment] = merge.version
    said = {"step": step, "versions": tuple(versions), "tokens": 0, "life": 9, **fields}
    return evaluated(**said)


def proof_with(run: RealRun, path: Path, word: Event) -> Proof:
    """The proof of a run in which somebody said one more word before its first closing."""
    saying = RealRun(run.store, steps=5)
    take_over = saying.take_over

    def said_late(syncer: str) -> None:
        take_over(syncer)
        if syncer == "syncer-2":
            saying.say(word)

    saying.take_over = said_late
    return verified(saying.play().save_tape(path))


@pytest.mark.parametrize("step", [0, 1, 3])
def test_an_evaluation_of_versions_that_stood_together_is_agreed_to(
    sound: RealRun, tmp_path: Path, step: int
) -> None:
    proof = proof_with(sound, tmp_path / "run.tape", evaluation(sound, step))

    assert proof.ok, proof.first_difference


def test_an_evaluation_of_versions_that_never_stood_together_is_found_out(
    sound: RealRun, tmp_path: Path
) -> None:
    word = evaluation(sound, 1, versions=(0, 1, 0))

    proof = proof_with(sound, tmp_path / "run.tape", word)

    assert proof.first_difference is not None
    assert "evaluates versions (0, 1, 0) at step 1; (1, 0, 0) stood" in proof.first_difference.what


def abandoned_for_less(envelope: Envelope) -> Event:
    """Of two offers that were left out, only the one whose bytes were missing."""
    event = envelope.event
    if not isinstance(event, MergeAbandoned):
        return event
    left_out = tuple(each for each in event.left_out if each.reason == "missing")
    assert len(left_out) < len(event.left_out)
    return event.model_copy(update={"left_out": left_out})


def recoded_snapshot(envelope: Envelope) -> Event:
    """Snapshots under another codec, which no digest of theirs knows."""
    event = envelope.event
    if not isinstance(event, SnapshotStored):
        return event
    return event.model_copy(update={"manifest": event.manifest.model_copy(update={"codec": "raw"})})


Forgery = Callable[[Envelope], Event]

FORGERIES: list[tuple[str, Callable[[], Forgery], str]] = [
    ("an offer's counters", lambda: with_fields(DeltaOffered, tokens=10**9), "a delta_refused"),
    ("a learner's slot", lambda: with_fields(LearnerJoined, slot=2), "slot 0, the tape says 2"),
    ("a learner's place", lambda: with_fields(LearnerJoined, versions=(9, 0, 0)), "do not exist"),
    ("a round's pace", lambda: with_fields(RoundOpened, pace_seconds=9.0), "the tape says 9.0"),
    ("a round's tokens", lambda: with_fields(RoundOpened, tokens=9), "tokens 0, the tape says 9"),
    (
        "a window's reason",
        lambda: with_fields(WindowClosed, reason="why not"),
        "the tape says why not",
    ),
    (
        "why the run closes",
        lambda: with_fields(RunClosing, reason="tokens"),
        "reason steps, the tape",
    ),
    ("a snapshot's codec", lambda: recoded_snapshot, "named as raw; it is msgpack"),
    ("an abandoned round", lambda: abandoned_for_less, "though 2 offers passed"),
]


@pytest.mark.parametrize(
    ("what", "forge", "told"), FORGERIES, ids=[each[0].replace(" ", "-") for each in FORGERIES]
)
def test_a_decision_that_the_rules_do_not_give_is_found_out(
    tmp_path: Path, what: str, forge: Callable[[], Forgery], told: str
) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    path = rewritten(run, tmp_path / "run.tape", forge())

    proof = verified(path)

    assert proof.first_difference is not None, what
    assert told in proof.first_difference.what
    assert proof.first_difference.position is not None


def test_a_word_that_came_from_no_inbox_is_found_out(sound: RealRun, tmp_path: Path) -> None:
    run = RealRun(sound.store, steps=5).play()
    joined = first(run, LearnerJoined).position
    run.tape[joined - 1] = replace(run.tape[joined - 1], source=None)
    path = rewritten(run, tmp_path / "run.tape", lambda envelope: envelope.event)

    proof = verified(path)

    assert proof.first_difference is not None
    assert proof.first_difference.what == "learner_joined came from no inbox"


def test_a_report_of_the_future_is_not_admitted(sound: RealRun, tmp_path: Path) -> None:
    path = rewritten(
        sound,
        tmp_path / "run.tape",
        lambda each: evaluation(sound, 3) if each.position == 7 else each.event,
    )

    proof = verified(path)

    assert isinstance(evaluation(sound, 3), EvaluationReported)
    assert proof.first_difference is not None
    assert "evaluates step 3" in proof.first_difference.what
