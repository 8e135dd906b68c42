"""What a synthetic run runs on: learners, their speeds and network, failures, and capacity that
comes and goes. A value; draws nothing.

The failures are those of `replay goodput`, in the seconds of the big cluster. Time is scaled by
one number, `big_steps`: how many steps of the big cluster one inner step of the small model stands
for.

Kept whatever `big_steps` is: each learner's goodput, the share of its slices, MTBF over return
delay and over reconfiguration time, and each transfer over a step of the model. With
`big_steps` = 1 also MTBF, return delay and reconfiguration time over a step: a pause then costs as
many rounds as in the big cluster. With `big_steps` = b, b times as many failures fall into a run
of so many steps, and each pause is b times shorter in steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from decodiloco.config import Run
from decodiloco.errors import ConfigInvalid
from decodiloco.local.availability import Availability
from replay.goodput.settings import Scenario

WORD_SHARE = 0.01  # a word's or fact's way, as a share of a step: seconds are free, order is not
LEARNERS_MAX = 256


@dataclass(frozen=True, slots=True)
class Cluster:
    """Learners of a base, which may fail, and extra ones, which come and go and never fail.

    `step_seconds`: what a step takes on each learner of the base; their number is M. An extra
    learner takes the median of these.
    `upload_seconds`, `fetch_seconds`: a delta's or checkpoint's way to the store, a merged
    fragment's way from it. `merge_seconds`: a merge. `word_seconds`: a word's way to the tape,
    and a fact's to each learner.
    `jitter`: each step and transfer takes 1 +- this, drawn each time.
    `answers_while_paused`: a learner that reconfigures still offers, fetches and speaks.
    `failures`: the law by which slices fail and come back, of `len(step_seconds)` learners; None:
    nothing fails. Its own speeds and times of the network are not looked at.
    `availability`: how many extra learners there are, and when, in seconds; None: never any.
    """

    step_seconds: tuple[float, ...]
    upload_seconds: float = 1.0
    fetch_seconds: float = 1.0
    merge_seconds: float = 0.5
    word_seconds: float = 0.05
    jitter: float = 0.05
    answers_while_paused: bool = False
    failures: Scenario | None = None
    availability: Availability | None = None

    def __post_init__(self) -> None:
        assert len(self.step_seconds) >= 1 and min(self.step_seconds) > 0.0
        assert min(self.upload_seconds, self.fetch_seconds, self.merge_seconds) >= 0.0
        assert self.word_seconds >= 0.0 and 0.0 <= self.jitter < 1.0
        if self.failures is not None:
            assert self.failures.cluster.learners == len(self.step_seconds)

    @property
    def learners(self) -> int:
        """M, the learners of the base."""
        return len(self.step_seconds)

    @property
    def median_step_seconds(self) -> float:
        """The step of the median learner of the base (the lower one of two)."""
        return sorted(self.step_seconds)[(self.learners - 1) // 2]


def cluster_of(
    scenario: Scenario,
    big_steps: float = 1.0,
    failing: bool = True,
    availability: Availability | None = None,
) -> Cluster:
    """The cluster of a goodput scenario; `availability` is in seconds of the scaled run.

    Raises ConfigInvalid for what a tape cannot tell: work of a failing step that is lost, a syncer
    that fails, learners that wait for merges.
    """
    _check(scenario)
    assert big_steps > 0.0
    sync, count = scenario.sync, scenario.cluster.learners
    return Cluster(
        step_seconds=tuple(scenario.step_seconds(m) * big_steps for m in range(count)),
        upload_seconds=sync.upload_seconds * big_steps,
        fetch_seconds=sync.fetch_seconds * big_steps,
        merge_seconds=sync.merge_seconds * big_steps,
        word_seconds=WORD_SHARE * scenario.costs.step_seconds * big_steps,
        jitter=sync.jitter,
        answers_while_paused=sync.answer_while_paused,
        failures=scenario if failing else None,
        availability=availability,
    )


def big_steps_for(scenario: Scenario, failures: float, steps: float) -> float:
    """The scale at which about so many failures of the whole cluster fall into so many steps.

    Counted over stepping time, as the paper does; by the wall clock there are some more.
    """
    per_second = scenario.failures_per_second() * scenario.cluster.learners
    return failures / (per_second * scenario.costs.step_seconds * steps)


def inner_steps_of(run: Run, learners: int) -> float:
    """About how many inner steps a learner of M trains until the run's end, when nothing fails."""
    if run.end.tokens is not None:
        return run.end.tokens / (learners * run.training.batch_sequences * run.model.context)
    if run.end.steps is not None:
        return run.end.steps * run.inner_steps / run.fragments
    raise ConfigInvalid(
        f"run {run.name} has no end; a synthetic tape needs one: set run.end.tokens or "
        "run.end.steps"
    )


def check_fits(run: Run, cluster: Cluster) -> None:
    """Raises ConfigInvalid when a run cannot be played on a cluster."""
    inner_steps_of(run, cluster.learners)
    needed = max(run.quorum, run.learners_min)
    if needed > cluster.learners:
        raise ConfigInvalid(
            f"run {run.name} begins with {run.learners_min} learners and merges {run.quorum}; "
            f"the cluster has {cluster.learners}: set run.quorum and run.learners_min lower, or "
            "--learners higher"
        )
    if cluster.learners > LEARNERS_MAX:
        raise ConfigInvalid(
            f"{cluster.learners} learners; a tape is made of {LEARNERS_MAX} at most"
        )


def _check(scenario: Scenario) -> None:
    if scenario.costs.failing_step == "lost":
        raise ConfigInvalid("costs.failing_step is lost; on a tape a failing step is always kept")
    if scenario.sync.syncer_mtbf_hours:
        raise ConfigInvalid("sync.syncer_mtbf_hours is set; on a synthetic tape no syncer fails")
    if scenario.sync.run_on_seconds is not None:
        raise ConfigInvalid("sync.run_on_seconds is set; learners of a run never wait for a merge")


def check_same_rounds(run: Run, scenario: Scenario) -> None:
    """Raises ConfigInvalid when rounds were set for the cluster, and the run has others.

    On a tape the rounds are those of the run; what was not set is not compared.
    """
    theirs = {
        "quorum": run.quorum,
        "gamma": run.window.gamma,
        "inner_steps": run.inner_steps,
        "fragments": run.fragments,
        "overlap": run.window.overlap,
    }
    for name in sorted(scenario.sync.model_fields_set & theirs.keys()):
        ours = getattr(scenario.sync, name)
        if ours != theirs[name]:
            raise ConfigInvalid(
                f"sync.{name} is {ours}, but run {run.name} has {theirs[name]}; on a tape the "
                "rounds are the run's: leave it out, or change the run"
            )
