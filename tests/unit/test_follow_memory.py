"""What a shadow keeps is little, however long its run is; and how far behind it says it is."""

from __future__ import annotations

import pytest

from decodiloco.merge.self_test import self_test
from decodiloco.store.open_store import open_store
from decodiloco.syncer.machine import begin, fold
from replay import facts_check
from replay.errors import Differs
from replay.facts_check import FactsCheck
from replay.follow import shadow as shadow_module
from replay.follow.lag import Lag
from replay.follow.shadow import Shadow
from replay.follow.told import Watched, lag_line
from replay.state import read_opening
from streams.events import DeltaOffered, EvaluationReported, FragmentMerged, SnapshotStored
from tests.builders import evaluated
from tests.real_run import RealRun
from tests.unit.test_follow import opened_of


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that nobody touched."""
    folder = tmp_path_factory.mktemp("sound")
    return RealRun(open_store((folder / "store").as_uri())).play()


def test_the_lag_counts_from_the_moment_that_the_end_was_seen() -> None:
    lag = Lag()
    assert lag.behind(0, 5.0) == (0, 0.0)

    lag.saw(10, 100.0)
    lag.saw(12, 101.0)
    lag.saw(12, 102.0)

    assert lag.behind(0, 103.0) == (12, 3.0)
    assert lag.behind(10, 103.0) == (2, 2.0)
    assert lag.behind(12, 104.0) == (0, 0.0)
    assert lag.behind(13, 104.0) == (0, 0.0)
    assert lag_line(Watched("demo", position=10), 2, 2.0) == (
        "position 10, step 0: 0 merges made again; behind by 2 facts, 2.0 s"
    )


def test_a_shadow_keeps_little_however_long_the_run_is(sound: RealRun) -> None:
    opening = read_opening(sound.store, opened_of(sound.tape))
    shadow = Shadow(sound.store, opening)

    told = shadow.tell(sound.tape)

    assert told.differs is None
    assert not any(
        isinstance(owed.envelope.event, DeltaOffered) and owed.checks for owed in told.owed
    )
    shadow.settle()
    assert len(shadow._states) <= 1 + max(
        len(sound.tape) - e.event.position
        for e in sound.tape
        if isinstance(e.event, SnapshotStored)
    )


def test_what_is_let_go_of_is_never_an_offer_or_a_merge_that_was_just_told(
    sound: RealRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled offers are let go of at each fact, and merges at each merge: nothing is missed."""
    monkeypatch.setattr(facts_check, "OFFERS_MORE_MAX", -10_000)
    monkeypatch.setattr(shadow_module, "MERGES_MAX", 1)
    opening = read_opening(sound.store, opened_of(sound.tape))
    shadow, versions = Shadow(sound.store, opening), [begin(opening).versions]

    for envelope in sound.tape:
        told = shadow.tell([envelope])
        assert told.differs is None, told.differs
        if isinstance(envelope.event, FragmentMerged):
            versions.append(shadow.state.versions)
        known = shadow._facts._known_step
        assert not known or shadow._facts._versions == versions[known]

    shadow.settle()


def test_evaluations_are_judged_by_what_is_kept_and_older_ones_are_not(sound: RealRun) -> None:
    """Of five merges kept at least, an evaluation of the last five is judged: right and wrong."""
    opening = read_opening(sound.store, opened_of(sound.tape))
    facts, state, versions = FactsCheck(self_test()), begin(opening), [begin(opening).versions]
    for envelope in sound.tape:
        facts.let_go(state, 3)
        facts.tell(state, envelope)
        state = fold(state, envelope)
        if isinstance(envelope.event, FragmentMerged):
            versions.append(state.versions)

    def judge(step: int, said: tuple[int, ...]) -> None:
        event = evaluated(step=step, tokens=0, versions=said)
        assert isinstance(event, EvaluationReported)
        facts._check_evaluation(state, event, len(sound.tape))

    assert state.step >= 8
    for step in range(state.step - 2, state.step + 1):
        judge(step, versions[step])
        wrong = (versions[step][0] + 1, *versions[step][1:])
        with pytest.raises(Differs, match="evaluates versions"):
            judge(step, wrong)
    judge(0, (9, 9, 9))
    assert sum(map(len, facts._merge_steps.values())) <= 6


def test_a_check_that_begins_later_counts_the_tokens_that_were_merged_before(
    sound: RealRun,
) -> None:
    opening = read_opening(sound.store, opened_of(sound.tape))
    state = begin(opening)
    for envelope in sound.tape[: len(sound.tape) // 2]:
        state = fold(state, envelope)
    facts = FactsCheck.after(self_test(), state)
    for envelope in sound.tape[len(sound.tape) // 2 :]:
        facts.tell(state, envelope)
        state = fold(state, envelope)

    whole = FactsCheck(self_test())
    again = begin(opening)
    for envelope in sound.tape:
        whole.tell(again, envelope)
        again = fold(again, envelope)
    assert facts.fates(state) == whole.fates(again)
