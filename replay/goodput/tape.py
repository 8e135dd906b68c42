"""The door from the goodput model to a synthetic tape: what was asked, as a cluster and a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from decodiloco.config import load_config
from decodiloco.errors import ConfigInvalid
from decodiloco.local.availability import Availability
from replay.goodput.settings import DAY_SECONDS, Scenario
from replay.synthetic.cluster import (
    Cluster,
    big_steps_for,
    check_same_rounds,
    cluster_of,
    inner_steps_of,
)
from replay.synthetic.writing import write_synthetic


@dataclass(frozen=True, slots=True)
class Asked:
    """A tape that is wanted: where, of which run, with how many failures (None: unscaled)."""

    folder: Path
    config: Path
    failures: float | None
    seed: int


def write_tape(
    scenario: Scenario, asked: Asked, availability: Availability | None
) -> dict[str, object]:
    """Writes the tape; what it comes to, as it is told in JSON.

    With an availability nothing fails, as in the model of scavenging. Raises ConfigInvalid when
    the options, the run and the cluster do not fit each other.
    """
    run = load_config(asked.config).run
    check_same_rounds(run, scenario)
    steps = inner_steps_of(run, scenario.cluster.learners)
    big_steps = 1.0
    if asked.failures is not None:
        if availability is not None:
            raise ConfigInvalid("--failures goes without --scavenge: nothing fails there")
        big_steps = big_steps_for(scenario, asked.failures, steps)
    cluster = _cluster(scenario, big_steps, steps, availability)
    written = asdict(write_synthetic(asked.folder, run, cluster, asked.seed))
    written["tape"] = str(written["tape"])
    written["goodput"] = round(100 * float(written["goodput"]), 3)
    return {**written, "inner_steps": round(steps, 3), "big_steps": big_steps}


def tape_lines(run_file: Path, told: dict[str, object]) -> Iterator[str]:
    """The same for people."""
    yield (
        f"{told['tape']}: {told['events']} facts, {told['merges']} merges, {told['lives']} lives, "
        f"{told['tokens']:,} tokens in {told['run_seconds']:,.0f} simulated seconds"
    )
    yield (
        f"goodput {told['goodput']:.1f} %; about {told['inner_steps']:.0f} inner steps a learner, "
        f"each standing for {told['big_steps']:.3g} of the cluster's (run of {run_file})"
    )


def _cluster(
    scenario: Scenario, big_steps: float, steps: float, availability: Availability | None
) -> Cluster:
    if availability is None:
        return cluster_of(scenario, big_steps)
    base_seconds = steps * scenario.costs.step_seconds
    shrunk = base_seconds / (scenario.scavenging.budget_days * DAY_SECONDS)
    spans = tuple((length * shrunk, learners) for length, learners in availability.spans)
    return cluster_of(scenario, failing=False, availability=Availability(spans))
