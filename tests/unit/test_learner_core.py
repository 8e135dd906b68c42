"""A learner in small histories: what it copies, offers, adopts and says, and when it does not.

The syncer's side is the production machine, so every word also has to pass its gates.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from decodiloco.fragments.of_model import trained
from decodiloco.learner.checkpoint import capture, restore
from decodiloco.learner.core import LearnerCore
from decodiloco.learner.delta import delta_of
from decodiloco.learner.jobs import CheckpointJob, OfferJob
from decodiloco.store.keys import key_of_checkpoint
from decodiloco.store.tensors import read_raw
from decodiloco.syncer.owed import OpenRound
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MergeAbandoned,
)
from streams.parts import LeftOut
from tests.hand_run import HandRun, plain_run, small_model, train


def alone(**settings: object) -> tuple[HandRun, LearnerCore, nn.Module]:
    """A run with one learner that has just joined."""
    model = small_model()
    run = HandRun(plain_run(**settings), model)
    return run, run.join("a", model), model


def offers(run: HandRun) -> list[tuple[int, int, int, int, int]]:
    """Round, fragment, base version, step and steps covered, of every admitted offer."""
    return [
        (o.round, o.fragment, o.base_version, o.learner_step, o.inner_steps)
        for o in run.facts(DeltaOffered)
        if isinstance(o, DeltaOffered)
    ]


def test_an_open_round_is_answered_once_from_the_copy_of_the_last_boundary() -> None:
    run, core, model = alone()
    train(model, core, 0)
    run.open_round()
    train(model, core, 1)
    run.exchange()
    train(model, core, 2)
    run.exchange()
    assert offers(run) == [(1, 0, 0, 2, 2)]


def test_a_round_that_opens_between_boundaries_is_answered_from_the_copy_made_ahead() -> None:
    run, core, model = alone()
    train(model, core, 0)
    run.open_round()
    run.exchange()
    assert offers(run) == [(1, 0, 0, 1, 1)]


def test_a_slow_learner_answers_several_rounds_from_one_boundary() -> None:
    run, core, _model = alone(fragments=4, window={"overlap": 3})
    run.open_round()
    core.step(tokens=8, loss=1.0, step_seconds=40.0)
    run.open_round(), run.open_round()
    run.exchange()
    assert offers(run) == [(1, 0, 0, 1, 1), (2, 1, 0, 1, 1), (3, 2, 0, 1, 1)]


def test_nothing_is_answered_without_a_new_step() -> None:
    run, core, _model = alone()
    run.open_round()
    run.exchange()
    assert (offers(run), core.has_jobs()) == ([], False)


def test_a_merged_fragment_is_offered_again_only_once_it_is_adopted() -> None:
    run, core, model = alone(window={"overlap": 2})
    run.open_round()
    train(model, core, 0)
    run.exchange()
    run.merge()
    run.open_round(), run.open_round()
    core.step(tokens=8, loss=1.0)
    assert [job for job in core.jobs() if isinstance(job, OfferJob) and job.ask.round == 3] == []
    assert core.state.fragments[0].fetching == 1


def test_work_that_was_adopted_over_is_told_after_the_offer_that_holds_it() -> None:
    run, core, model = alone(quorum=1)
    run.open_round()
    train(model, core, 0)
    run.exchange()
    run.merge()
    core.work(run.store)
    train(model, core, 1)
    run.open_round()
    train(model, core, 2)
    run.exchange()
    second = run.facts(DeltaOffered)[1]
    assert isinstance(second, DeltaOffered)
    assert [(a.fragment, a.version, a.learner_step) for a in second.adopted] == [(0, 1, 2)]
    assert (second.fragment, second.base_version, second.inner_steps) == (1, 0, 3)
    assert run.facts(DeltaRefused) == []


def test_a_refused_offer_is_made_again_from_a_newer_copy_and_its_adoptions_are_told_again() -> None:
    run, core, model = alone()
    run.open_round()
    train(model, core, 0)
    run.exchange()
    run.merge()
    core.work(run.store)
    train(model, core, 1)
    run.open_round()
    core.step(tokens=8, loss=1.0)
    core.work(run.store)
    word = core.say()
    assert isinstance(word, DeltaOffered) and len(word.adopted) == 1
    run.write(
        DeltaRefused(
            learner="a",
            incarnation=word.incarnation,
            said=word.said,
            round=word.round,
            fragment=word.fragment,
            learner_step=word.learner_step,
            inner_steps=word.inner_steps,
            tokens=word.tokens,
            tokens_trained=word.tokens_trained,
            reason="a whim",
        )
    )
    assert not core.has_jobs()
    core.step(tokens=8, loss=1.0)
    core.work(run.store)
    again = core.say()
    assert isinstance(again, DeltaOffered)
    assert (again.round, again.said, again.learner_step) == (word.round, 3, word.learner_step + 1)
    assert again.adopted == word.adopted


def test_a_learner_whose_values_are_not_finite_overwrites_all_and_zeroes_its_moments() -> None:
    run, core, model = alone()
    train(model, core, 0)
    run.open_round()
    with torch.no_grad():
        model[1].weight.fill_(float("nan"))
    core.step(tokens=8, loss=float("nan"))
    run.exchange()
    refused = run.facts(DeltaRefused)
    assert [r.reason[:10] for r in refused if isinstance(r, DeltaRefused)] == ["not finite"]
    assert core.state.refresh == "heal"
    core.step(tokens=8, loss=float("nan"))
    assert core.state.refresh == ""
    assert core.digest() == run.digest()
    moments = [s["momentum_buffer"] for s in core.optimizer.state.values()]
    assert moments and not any(bool(moment.any()) for moment in moments)
    train(model, core, 5)
    run.exchange()
    assert len(run.facts(DeltaOffered)) == 1 and core.state.refresh == ""


def test_bytes_that_are_not_finite_heal_the_learner_too_and_the_round_is_answered_again() -> None:
    run, core, model = alone()
    run.open_round()
    with torch.no_grad():
        model[1].weight.fill_(float("inf"))
        model[0].weight.fill_(float("inf"))
    core.step(tokens=8, loss=1.0)
    run.exchange()
    run.merge()
    abandoned = run.facts(MergeAbandoned)
    assert len(abandoned) == 1 and core.state.refresh == "heal"
    run.exchange()
    core.adopt()
    train(model, core, 3)
    run.exchange()
    run.merge()
    assert len(run.facts(FragmentMerged)) == 1


def test_an_offer_left_out_of_an_abandoned_merge_may_be_made_again() -> None:
    run, core, model = alone()
    run.open_round()
    train(model, core, 0)
    run.exchange()
    run.close_windows()
    position = core.state.sent[0].position
    run.write(MergeAbandoned(round=1, left_out=(LeftOut(position=position, reason="lost"),)))
    train(model, core, 1)
    run.exchange()
    assert [o[:1] + o[3:] for o in offers(run)] == [(1, 1, 1), (1, 2, 2)]


def test_a_blend_keeps_its_share_and_the_anchor_is_what_was_written() -> None:
    run, core, model = alone(adoption={"alpha": 0.25})
    run.open_round()
    train(model, core, 0)
    run.exchange()
    run.merge()
    merged = run.merged(0)
    core.work(run.store)
    before = {name: trained(model).tensors[name].detach().numpy().copy() for name in merged}
    core.adopt()
    for name, array in merged.items():
        live = trained(model).tensors[name].detach().numpy()
        expected = np.float32(0.25) * before[name] + np.float32(0.75) * np.asarray(array)
        assert np.array_equal(live, expected)


@pytest.mark.parametrize("carry", [False, True])
def test_a_bf16_model_has_a_delta_of_zero_where_nothing_was_trained(carry: bool) -> None:
    model = small_model(dtype=torch.bfloat16)
    run = HandRun(plain_run(fragments=1, adoption={"carry": carry}), model)
    core = run.join("a", model)
    run.open_round()
    train(model, core, 0)
    run.exchange()
    run.merge()
    core.work(run.store)
    core.adopt()
    run.open_round()
    core.step(tokens=8, loss=1.0)
    job = next(job for job in core.jobs() if isinstance(job, OfferJob))
    assert all(not delta.any() for delta in delta_of(job.copy).values())


@pytest.mark.parametrize("adoption", [{"alpha": 0.5}, {"carry": True}])
def test_at_the_end_every_learner_holds_the_run_s_digest_however_it_adopts(
    adoption: dict[str, object],
) -> None:
    model = small_model()
    run = HandRun(plain_run(adoption=adoption), model)
    other = deepcopy(model)
    pairs = [(model, run.join("a", model)), (other, run.join("b", other))]
    for step in range(6):
        if not run.state.rounds:
            run.open_round()
        for seed, (live, core) in enumerate(pairs):
            train(live, core, 10 * step + seed)
        run.exchange()
        run.merge()
    closed = run.close()
    run.exchange()
    for live, core in pairs:
        train(live, core, 99)
        assert core.state.final
        assert core.digest() == closed.digest
        core.leave("finished", core.digest())
    run.exchange()
    left = run.facts(LearnerLeft)
    assert [(w.learner, w.digest) for w in left if isinstance(w, LearnerLeft)] == [
        ("a", closed.digest),
        ("b", closed.digest),
    ]
    assert all(core.state.left for _, core in pairs) and run.complaints == []


def test_a_new_life_goes_on_where_the_last_admitted_word_ended() -> None:
    run, core, model = alone()
    run.open_round()
    train(model, core, 0, cursor=b"one")
    run.exchange()
    train(model, core, 1, cursor=b"two")
    run.cores.clear()
    again = run.join("a", small_model(seed=3))
    assert (again.state.learner_step, again.state.tokens_trained) == (1, 8)
    assert again.state.cursor == b"one"
    joins = run.facts(LearnerJoined)
    assert [j.slot for j in joins if isinstance(j, LearnerJoined)] == [0, 0]


def test_a_newer_life_ends_an_older_one() -> None:
    run, core, model = alone()
    newer = run.join("a", deepcopy(model))
    assert core.state.ended_by == newer.state.incarnation
    run.open_round()
    core.step(tokens=8, loss=1.0)
    assert (core.has_jobs(), core.say()) == (False, None)


def test_a_farewell_comes_after_what_is_ready_and_nothing_comes_after_it() -> None:
    run, core, model = alone()
    run.open_round()
    train(model, core, 0)
    core.work(run.store)
    core.leave("preempted")
    run.exchange()
    kinds = [envelope.event.kind for envelope in run.tape[-2:]]
    assert kinds == ["delta_offered", "learner_left"]
    assert (core.state.left, core.say(), core.has_jobs()) == (True, None, False)


def test_a_checkpoint_is_stored_and_restores_moments_and_random_states() -> None:
    run, core, model = alone(training={"checkpoint_steps": 2})
    train(model, core, 0)
    train(model, core, 1)
    jobs = [job for job in core.jobs() if isinstance(job, CheckpointJob)]
    expected = torch.rand(3)
    core.done(jobs[0], jobs[0].run_on(run.store), 0.0)
    run.exchange()
    stored = run.facts(CheckpointStored)[0]
    assert isinstance(stored, CheckpointStored) and stored.learner_step == 2
    twin = small_model(seed=8)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    arrays = read_raw(run.store, key_of_checkpoint("trial", stored), stored.manifest)
    assert restore(optimizer, trained(twin).tensors, arrays, own=True)
    assert torch.equal(torch.rand(3), expected)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        here = core.optimizer.state[ours]["momentum_buffer"]
        assert torch.equal(here, optimizer.state[theirs]["momentum_buffer"])


def test_moments_of_another_kind_of_optimizer_are_not_taken() -> None:
    _run, core, model = alone()
    train(model, core, 0)
    other = torch.optim.AdamW(model.parameters())
    tensors = trained(model).tensors
    assert not restore(other, tensors, capture(core.optimizer, tensors), own=False)
    assert not other.state


def test_only_the_newest_checkpoint_waits_to_be_said() -> None:
    run, core, model = alone(training={"checkpoint_steps": 1})
    for step in range(4):
        train(model, core, step)
        core.work(run.store)
    assert [draft.learner_step for draft in core.state.drafts] == [4]


def test_a_fact_folded_twice_changes_nothing() -> None:
    run, core, model = alone()
    run.open_round()
    train(model, core, 0)
    run.exchange()
    before = core.state
    for envelope in run.tape:
        run.give(core, envelope)
    assert core.state == before


@pytest.mark.parametrize("codec", ["fp32", "bf16"])
def test_many_rounds_with_two_learners_pass_every_gate(codec: str) -> None:
    model = small_model()
    run = HandRun(plain_run(codecs={"delta": codec}, window={"overlap": 2}), model)
    other = deepcopy(model)
    pairs = [(model, run.join("a", model)), (other, run.join("b", other))]
    for step in range(40):
        if step % 3 != 2 and not run.state.rounds:
            run.open_round()
        for seed, (live, core) in enumerate(pairs):
            if (step + seed) % 4:
                train(live, core, 10 * step + seed)
        run.exchange()
        run.merge()
    assert run.facts(DeltaRefused) == [] and run.complaints == []
    assert run.state.step > 10
    for learner in run.state.learners.values():
        for account in learner.accounts:
            assert 0 <= sum(account.totals().values()) <= learner.tokens_trained


def test_a_run_whose_only_learner_was_taken_for_dead_goes_on() -> None:
    run, core, model = alone()
    train(model, core, 0)
    run.open_round()
    train(model, core, 1)
    run.exchange()
    run.merge()
    life = core.state.incarnation
    run.write(LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=10.0))
    assert not list(run.asks(OpenRound)), "nobody lives, so there is nothing to answer"
    train(model, core, 2)
    run.exchange()
    assert isinstance(run.tape[-1].event, CheckpointStored)
    assert run.open_round() == 2
