"""The laws of the protocol over random histories: production machines, an independent count."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from decodiloco.opening import Opening
from decodiloco.syncer.owed import owed
from streams.events import DeltaOffered, FragmentMerged, LearnerLeft, RoundOpened
from tests.builders import closing
from tests.desk import opening_of
from tests.wild_run import Life, WildRun

# What a sound learner may be told, and nothing else.
EXPECTED = {"old incarnation", "not finite", "overlaps", "too old", "the run is closed"}
# Where gates count strikes also this: what a wild delta is left out for, its life is ended for.
QUARANTINED = {"quarantined (direction", "quarantined (not finite"}
JOIN_RACES = ("joins at step", "the run is closed")

seeds = st.integers(0, 2**32)
wildly = settings(deadline=None, max_examples=30)


def wild_opening(seed: int) -> Opening:
    """One of several kinds of run."""
    kinds: list[dict[str, object]] = [
        {"fragments": 3, "quorum": 1},
        {"fragments": 3, "quorum": 2},
        {"fragments": 3, "quorum": 1, "gates": {"strikes": 1}},
        {"fragments": 1, "quorum": 1, "window": {"overlap": 1}},
        {"fragments": 2, "quorum": 3, "learners_min": 3},
        {"fragments": 4, "quorum": 1, "inner_steps": 2, "window": {"overlap": 4}},
        {"fragments": 2, "quorum": 1, "merge": {"staleness_versions_max": 0}},
        {"fragments": 2, "quorum": 2, "merge": {"staleness_versions_max": 3}},
        {"fragments": 2, "quorum": 1, "adoption": {"carry": True}},
        {
            "fragments": 1,
            "quorum": 2,
            "adoption": {"carry": True},
            "merge": {"staleness_versions_max": 3},
        },
    ]
    chosen = kinds[seed % len(kinds)]
    chosen["regions"] = ("home", "away") if seed % 2 else ("home",)
    chosen["training"] = {"checkpoint_steps": 10**6 if seed % 3 else 7}
    return opening_of(chosen.pop("fragments"), **chosen)


def wild(seed: int, happenings: int = 3000) -> WildRun:
    run = WildRun(wild_opening(seed), seed)
    for name in "abc":
        run.begin_life(name)
    for _ in range(happenings):
        run.happen()
    return run


def no_step_is_merged_twice(run: WildRun) -> None:
    """By what the deltas really held, whatever the words said."""
    offers = {e.position: e.event for e in run.syncer.tape if isinstance(e.event, DeltaOffered)}
    merged: set[tuple[int, object]] = set()
    for envelope in run.syncer.tape:
        if isinstance(envelope.event, FragmentMerged):
            for position in envelope.event.contributions:
                offer = offers[position]
                held = run.contents[offer.manifest.digest]
                assert (offer.base_version, offer.inner_steps, offer.tokens) == (
                    held.base_version, len(held.units), held.tokens,
                )  # fmt: skip
                for unit in held.units:
                    assert (offer.fragment, unit) not in merged
                    merged.add((offer.fragment, unit))


@wildly
@given(seeds)
@example(9226632)  # a life is ended for its direction
@example(2265601302)  # and one for what is not finite
def test_no_history_merges_a_step_twice_or_breaks_the_count(seed: int) -> None:
    run = wild(seed)
    no_step_is_merged_twice(run)
    ended = QUARANTINED if run.opening.run.gates.strikes else set()
    assert set(run.syncer.plain.refusals) <= EXPECTED | ended
    assert [r for r in run.syncer.unreadable if not r.startswith(JOIN_RACES)] == []


@wildly
@given(seeds)
def test_after_any_history_the_run_goes_on(seed: int) -> None:
    run = wild(seed)
    run.settle(3)
    if seed % 2 or len(run.syncer.state.live) < run.opening.run.quorum:
        for name in "abc":
            run.begin_life(name)
        run.settle(3)
    before = run.syncer.state.versions
    run.settle(12)
    after = run.syncer.state.versions
    if run.syncer.state.closed is None:
        assert all(new > old for old, new in zip(before, after, strict=True)), owed(
            run.syncer.state
        )
    no_step_is_merged_twice(run)


@wildly
@given(seeds)
def test_after_any_history_a_run_can_be_closed(seed: int) -> None:
    run = wild(seed)
    if seed % 5:
        for name in "abc":
            run.begin_life(name)
    run.syncer.receive("home", closing())
    run.settle(15)
    state = run.syncer.state
    assert state.closed is not None, owed(state)
    for life in run.lives:
        assert life.over or not life.state.incarnation
        assert life.state.ended_by or life.state.in_flight is None
    run.settle(2)
    assert (state.live, dict(state.offers), dict(state.rounds)) == ((), {}, {})
    for name, learner in state.learners.items():
        for fragment in range(len(state.fragments)):
            assert learner.fates(fragment) == run.syncer.plain.fates(name, fragment)
            assert learner.fates(fragment)["open"] == 0
    no_step_is_merged_twice(run)


Write = tuple[int, int, int]  # fragment, version, learner step


def told_by(run: WildRun, life: Life) -> list[tuple[DeltaOffered | LearnerLeft, list[Write]]]:
    """The words of a life that were admitted, each with the adoptions that it tells."""
    return [
        (word, [(each.fragment, each.version, each.learner_step) for each in word.adopted])
        for word in (envelope.event for envelope in run.syncer.tape)
        if isinstance(word, DeltaOffered | LearnerLeft) and word.learner == life.name
        and word.incarnation == life.state.incarnation
    ]  # fmt: skip


@wildly
@given(seeds)
def test_a_tape_tells_every_adoption_of_a_life_up_to_its_last_word_in_order(seed: int) -> None:
    run = wild(seed)
    if seed % 2:
        run.syncer.receive("home", closing())
        run.settle(15)
    for life in run.everyone:
        if not life.state.incarnation or life.untold_most > 64:
            continue
        told: dict[int, list[Write]] = {fragment: [] for fragment in range(run.fragments)}
        for word, adoptions in told_by(run, life):
            assert [step for _, _, step in adoptions] == sorted(step for _, _, step in adoptions)
            for write in adoptions:
                told[write[0]].append(write)
            for fragment, writes in told.items():
                made = [write for write in life.writes if write[0] == fragment]
                assert writes == made[: len(writes)], "nothing is passed over"
                is_last = isinstance(word, LearnerLeft)
                if is_last or fragment == word.fragment:
                    reach = [w for w in made if w[2] < word.learner_step or is_last]
                    assert len(writes) >= len(reach), "a word tells what its work stands on"


@wildly
@given(seeds)
def test_an_offer_leaves_no_adoption_untold_that_its_work_stands_on(seed: int) -> None:
    run = wild(seed)
    for life in run.everyone:
        if not life.state.incarnation or life.untold_most > 64:
            continue
        told: set[Write] = set()
        for word, adoptions in told_by(run, life):
            told |= set(adoptions)
            if isinstance(word, DeltaOffered):
                told |= {(each.fragment, each.version, each.learner_step) for each in word.held}
                assert told >= {write for write in life.writes if write[2] < word.learner_step}


@wildly
@given(seeds)
def test_a_learner_s_clock_is_that_of_the_newest_merge_that_it_holds(seed: int) -> None:
    run = wild(seed)
    tokens: dict[int, int] = {}
    clocks = {(fragment, 0): (0, 0) for fragment in range(run.fragments)}
    for event in (envelope.event for envelope in run.syncer.tape):
        if isinstance(event, RoundOpened):
            tokens[event.round] = event.tokens
        if isinstance(event, FragmentMerged):
            clocks[event.fragment, event.version] = event.step, tokens[event.round]
    for life in run.everyone:
        held = [clocks[key] for key in enumerate(life.based_on)]
        clock = life.state.clock
        assert clock.step == max(step for step, _ in held)
        assert clock.tokens == max(count for _, count in held)
