"""The clusters that the study of learning compares, each with the rounds that it is played with.

Speeds and times of the network are in shares of a step of the big cluster, which takes the time
that `replay goodput` assumes; nothing here draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decodiloco.config import Run
from decodiloco.errors import ConfigInvalid
from replay.goodput.scavenging import by_work
from replay.goodput.settings import Scenario
from replay.synthetic.cluster import Cluster, cluster_of

CHIPS = (0, 1_200_000, 2_400_000)
LEARNERS = (2, 4, 8, 16)
EXTRA_PERCENT = (0, 25, 50, 100, 300)
SCAVENGING_BASE = 4
SLOWER_PERCENT, SPREAD = 18, 0.1  # the paper's table 5: half of the learners, and noise on all
JITTER = 0.02


@dataclass(frozen=True, slots=True)
class Trial:
    """A cluster and the quorum rule that it is tried with."""

    name: str
    cluster: Cluster
    quorum: int = 1
    gamma: float = 0.8

    def run_of(self, run: Run, sequences: int, steps: int) -> Run:
        """The run for this trial: `steps` steps of `sequences` sequences over all of the base.

        So all trials train the same number of tokens (the paper's iso-token comparison), and
        each learner of the base takes about `steps` inner steps of sequences / M. Raises
        ConfigInvalid when M does not divide `sequences`.
        """
        if sequences % self.cluster.learners:
            raise ConfigInvalid(
                f"{sequences} sequences a step cannot be dealt to {self.cluster.learners} learners"
            )
        told: dict[str, Any] = run.model_dump()
        told["quorum"] = self.quorum
        told["learners_min"] = self.cluster.learners
        told["window"] |= {
            "gamma": self.gamma,
            "step_seconds": self.cluster.median_step_seconds,
            "upload_seconds": max(self.cluster.upload_seconds, 1e-3),
        }
        told["training"]["batch_sequences"] = sequences // self.cluster.learners
        told["end"] = {"tokens": sequences * steps * run.model.context}
        return Run.model_validate(told)


def homogeneous(learners: int, chips: int, big_steps: float = 1.0) -> Trial:
    """Equal learners on so many chips; 0: as many as there are, and nothing fails."""
    scenario = _scenario(learners, chips, JITTER)
    cluster = cluster_of(scenario, big_steps, failing=chips > 0)
    return Trial(f"M={learners}, {chips / 1e6:g} M chips" if chips else f"M={learners}", cluster)


def heterogeneous(learners: int = 8) -> tuple[Trial, Trial, Trial]:
    """Every other learner slower: K = M without grace, K = 1 without, K = 1 with (table 5)."""
    scenario = _scenario(learners, 0, SPREAD)
    speeds = (1.0, 1.0 - SLOWER_PERCENT / 100)
    unequal = scenario.cluster.model_copy(update={"speeds": speeds})
    cluster = cluster_of(scenario.model_copy(update={"cluster": unequal}), failing=False)
    return (
        Trial(f"K={learners}, no grace", cluster, quorum=learners, gamma=0.0),
        Trial("K=1, no grace", cluster, gamma=0.0),
        Trial("K=1, grace", cluster),
    )


def scavenging(percent: int, steps: int, days: int = 4, learners: int = SCAVENGING_BASE) -> Trial:
    """So many percent more learners during half of the work, in turns of day and night.

    `steps`: those that the base alone would take; they are so many days long. The floor of the
    time is 0.5 + 0.5 / (1 + s) of the base's (table 4). Raises ConfigInvalid when the extra is no
    whole number of learners.
    """
    scenario = _scenario(learners, 0, JITTER)
    extra = learners * percent / 100
    if extra != round(extra):
        raise ConfigInvalid(f"{percent} % of {learners} learners is no whole number of learners")
    day_seconds = steps * scenario.costs.step_seconds / days
    there = by_work(float(learners), extra, day_seconds) if extra else None
    return Trial(f"+{percent} %", cluster_of(scenario, failing=False, availability=there))


def study_trials(steps: int) -> Sequence[Trial]:
    """All of them, once each."""
    return (
        *(homogeneous(learners, chips) for learners in LEARNERS for chips in CHIPS),
        *heterogeneous(),
        *(scavenging(percent, steps) for percent in EXTRA_PERCENT),
    )


def _scenario(learners: int, chips: int, jitter: float) -> Scenario:
    scenario = Scenario().with_cell(learners, True, chips or Scenario().cluster.chips)
    sync = scenario.sync.model_copy(update={"jitter": jitter})
    return scenario.model_copy(update={"sync": sync})
