"""Who contributes to a merge with what weight, in learner-id order (paper section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from decodiloco.config import Run
from decodiloco.merge.fragment import Contribution, MergeOrder, MergeSettings
from decodiloco.store.keys import delta_key
from decodiloco.syncer.in_flight import Offer
from decodiloco.syncer.state import Round, State


def merge_order(
    state: State, round_number: int, contributions: Sequence[int] | None = None
) -> MergeOrder:
    """All that the merge of a closed round needs; no state beside it.

    With `contributions` (positions, as a FragmentMerged names them) only these take part, as
    when a merge is made again. Weight of a contribution: tokens^2 / steps.
    """
    round_ = state.rounds[round_number]
    assert not round_.is_open, f"round {round_number} is not closed"
    chosen = round_.offers if contributions is None else tuple(contributions)
    offers = sorted((state.offers[position] for position in chosen), key=lambda o: o.learner)
    assert len({offer.learner for offer in offers}) == len(offers), "one contribution a learner"
    before = state.fragments[round_.fragment]
    config = state.config
    return MergeOrder(
        run=state.run,
        round=round_number,
        fragment=round_.fragment,
        version=round_.version,
        tensors=state.layout.of(round_.fragment),
        quorum=config.quorum,
        contributions=tuple(_contribution(state, round_, offer) for offer in offers),
        parameters=before.parameters,
        momentum=before.momentum,
        report=before.report,
        report_round=before.round if before.report else None,
        settings=merge_settings(config),
    )


def merge_settings(run: Run) -> MergeSettings:
    """What a run's config says about merging."""
    return MergeSettings(
        lr=run.outer.lr,
        mu=run.outer.momentum,
        norm_clip=None if run.merge.norm_clip == "none" else run.merge.norm_clip,
        direction=None if run.gates.direction == "none" else run.gates.direction,
        norm_extreme=None if run.gates.norm_extreme == "none" else run.gates.norm_extreme,
        delta_codec=run.codecs.delta,
        fragment_codec=run.codecs.fragment,
        fetch_seconds_max=run.times.fetch_seconds_max,
    )


def _contribution(state: State, round_: Round, offer: Offer) -> Contribution:
    return Contribution(
        position=offer.position,
        learner=offer.learner,
        tokens=offer.tokens,
        inner_steps=offer.inner_steps,
        key=delta_key(
            state.run,
            offer.learner,
            offer.incarnation,
            offer.fragment,
            offer.learner_step,
            offer.manifest,
        ),
        manifest=offer.manifest,
        distrusted=offer.position in round_.distrusted,
    )
