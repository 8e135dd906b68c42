"""What all cases of the study share: model, data, tokens; and the run that a case makes of them.

Pure. The digest of these settings stands in the results, so that only like is put beside like.
"""

from __future__ import annotations

from dataclasses import replace

from blake3 import blake3
from pydantic import Field

from decodiloco.config import (
    Adoption,
    Codecs,
    Merge,
    Model,
    Outer,
    Run,
    Table,
    Training,
)
from replay.goodput.scavenging import ideal_by_work
from replay.goodput.settings import Scenario
from replay.study.cases import Case
from replay.synthetic.clusters import Trial, heterogeneous, homogeneous, scavenging
from streams.codec import pack


class Study(Table):
    """The fixed side of the study. A step is one of `sequences` sequences over all learners."""

    steps: int = Field(500, ge=20, le=10**6, description="Steps of the whole; sets the tokens.")
    sequences: int = Field(32, ge=16, le=4096, description="Sequences of a step, of all learners.")
    context: int = Field(64, ge=8, description="Tokens in a sequence.")
    width: int = Field(64, ge=8, description="Width of the model.")
    layers: int = Field(2, ge=1, description="Blocks of the model.")
    heads: int = Field(2, ge=1, description="Attention heads.")
    fragments: int = Field(6, ge=1, description="P.")
    lr: float = Field(4e-3, gt=0, description="Peak rate of AdamW, the same for all cases.")
    outer_lr: float = Field(0.7, gt=0, description="Outer rate.")
    evaluate_tokens: int = Field(32768, ge=64, description="Held-out tokens of an evaluation.")
    evaluations: int = Field(5, ge=1, description="Evaluations along a run.")
    shards_each: int = Field(2, ge=1, description="Shards of text for each learner, seed 0.")
    blend: float = Field(0.5, gt=0, lt=1, description="Share that is kept where blending.")
    days: int = Field(4, ge=1, description="Days and nights of a run, where learners come and go.")

    def steps_of(self, case: Case) -> int:
        """Steps of a case, if all of its base trains all the time."""
        return round(self.steps * case.steps_percent / 100)

    def tokens_of(self, case: Case) -> int:
        """Tokens of a case, over all learners."""
        return self.steps_of(case) * self.sequences * self.context

    @property
    def digest(self) -> str:
        """16 hex digits that name these settings."""
        return blake3(pack(self.model_dump(mode="json"))).hexdigest()[:16]


def trial_of(case: Case, study: Study) -> Trial:
    """The simulated cluster of a case, with its quorum rule; seconds are the big cluster's."""
    if case.slower_percent:
        all_of_them, alone, graced = heterogeneous(case.learners)
        trial = all_of_them if case.quorum > 1 else graced if case.grace else alone
    elif case.extra_percent:
        trial = scavenging(case.extra_percent, study.steps, study.days, case.learners)
    else:
        trial = homogeneous(case.learners, case.chips)
    seconds = case.transfer_steps * trial.cluster.median_step_seconds
    cluster = replace(trial.cluster, upload_seconds=seconds, fetch_seconds=seconds)
    return replace(trial, cluster=cluster)


def run_of(case: Case, seed: int, study: Study) -> Run:
    """The run of a case, described as any run is.

    The seed draws the model's first parameters and how the text is dealt to learners: with more
    shards than learners, each reads other windows.
    """
    run = Run(
        name=f"study-{seed}",
        fragments=study.fragments,
        inner_steps=case.inner_steps,
        merge=Merge(rule=case.rule, embedding_rule=case.embedding_rule),
        outer=Outer(lr=study.outer_lr, momentum=case.momentum),
        adoption=_adoption(case, study),
        codecs=Codecs(delta=case.codec, feedback=case.feedback),
        model=Model(
            layers=study.layers,
            width=study.width,
            heads=study.heads,
            context=study.context,
            tied=True,
            seed=seed,
        ),
        training=Training(
            shards=case.learners_most * (study.shards_each + seed),
            lr=study.lr,
            evaluate_tokens=study.evaluate_tokens,
        ),
    )
    return trial_of(case, study).run_of(run, study.sequences, study.steps_of(case))


def evaluate_merges(case: Case, study: Study) -> int:
    """Merges between two evaluations of a case."""
    merges = study.steps_of(case) / case.inner_steps * study.fragments
    return max(1, round(merges / study.evaluations))


def scenario_of(learners: int, chips: int) -> Scenario:
    """So many learners on so many chips that may fail, with the constants of `replay goodput`."""
    scenario = Scenario()
    return scenario.with_cell(learners, True, chips or scenario.cluster.chips)


def ideal_time(case: Case) -> float:
    """The time of a case with extra learners against that without, if nothing is lost."""
    return ideal_by_work(case.learners, case.learners * case.extra_percent / 100)


def _adoption(case: Case, study: Study) -> Adoption:
    match case.adopted:
        case "overwrite":
            return Adoption()
        case "blend":
            return Adoption(alpha=study.blend)
        case "carry":
            return Adoption(carry=True)
