"""What a simulated cluster is: one frozen value, every number with its unit and its default.

The defaults are the one set of parameters that reproduces the paper's Table 1; where each comes
from is said in `docs/explanation/goodput.md`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from decodiloco.config import Table
from decodiloco.errors import ConfigInvalid

YEAR_SECONDS = 365.25 * 86400.0
DAY_SECONDS = 86400.0
FAILURES_PER_STEP_MAX = 1000

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Step = Annotated[float, Field(ge=0.001, le=1e6)]
Speed = Annotated[float, Field(ge=0.01, le=100)]
Clock = Literal["executed", "wall"]


class Cluster(Table):
    """The chips and how they are cut into learners; one learner is plain data parallelism."""

    chips: int = Field(1_200_000, ge=1, le=10**9, description="Chips of the whole cluster.")
    learners: int = Field(8, ge=1, le=4096, description="Learners, each with an equal share.")
    slice_chips: int = Field(
        256, ge=1, le=10**9, description="Chips that leave together when one of them fails."
    )
    elastic: bool = Field(True, description="A learner trains on with the slices that are left.")
    speeds: tuple[Speed, ...] = Field(
        (1.0,), min_length=1, max_length=4096,
        description="Relative speeds, dealt out to the learners in turn; 1 is step_seconds.",
    )  # fmt: skip


class Failures(Table):
    """How often chips fail, by which clock, and when their slice is back."""

    mtbi_years: float = Field(
        1.0, gt=0, le=1e12, description="Mean time between failures of one chip."
    )
    clock: Clock = Field(
        "executed",
        description="executed: chips fail only while steps run, as in the paper; wall: at any "
        "time, also while the learner reconfigures or waits.",
    )
    return_seconds: Seconds = Field(58.0, description="Mean time until a failed slice is back.")
    return_a: Positive = Field(1.0, description="Exponent of the exponentiated Weibull law.")
    return_c: Positive = Field(1.5, description="Shape of the exponentiated Weibull law.")


class Costs(Table):
    """What a step takes, and what each failure costs the learner that it hits."""

    step_seconds: Step = Field(5.0, description="A training step of a learner of speed 1.")
    detection_seconds: Seconds = Field(0.0, description="From the failing step's end to noticing.")
    down_seconds: Seconds = Field(9.0, description="To go on without a slice (elastic).")
    up_seconds: Seconds = Field(18.0, description="To take slices back in (elastic).")
    restart_seconds: Seconds = Field(
        18.0, description="To start again once all slices are back (not elastic)."
    )
    failing_step: Literal["kept", "lost"] = Field(
        "kept", description="Whether the work of the step in which a chip fails counts."
    )


class Sync(Table):
    """The rounds on top: quorum, grace window, network times and the syncer's own failures."""

    quorum: int = Field(1, ge=1, description="K: distinct learners that a merge needs.")
    gamma: float = Field(0.8, ge=0, le=1, description="Share of the slack used as grace; 0: none.")
    inner_steps: int = Field(24, ge=1, description="H: median steps between two versions.")
    fragments: int = Field(24, ge=1, description="P: fragments of the model.")
    overlap: int = Field(2, ge=1, description="tau: rounds open and unmerged at once.")
    upload_seconds: Seconds = Field(1.0, description="A delta's way to the store.")
    merge_seconds: Seconds = Field(0.5, description="A merge.")
    fetch_seconds: Seconds = Field(1.0, description="A merged fragment's way to the learners.")
    jitter: float = Field(0.0, ge=0, lt=1, description="A step takes 1 +- this, drawn each step.")
    syncer_mtbf_hours: Seconds = Field(0.0, description="Between two syncer failures; 0: never.")
    failover_seconds: Seconds = Field(30.0, description="Until a standby merges on.")
    answer_while_paused: bool = Field(
        False, description="A learner that reconfigures still offers its last copy."
    )
    run_on_seconds: float | None = Field(
        None, ge=0, description="Longest training without a merge; left out: learners never wait."
    )


class Scavenging(Table):
    """Extra learners that come and go beside those of the cluster (its base)."""

    budget_days: float = Field(
        10.0, gt=0, le=1e4, description="The token budget: days of work of the base alone."
    )
    extra: float = Field(4.0, ge=0, le=1e6, description="Extra learners, with a schedule.")
    period_hours: Positive = Field(24.0, description="Length of a day, with a schedule.")
    share: float = Field(0.5, ge=0, le=1, description="Part of a day, with the schedule clock.")
    join_seconds: Seconds = Field(60.0, description="Until a newcomer trains (decoupled).")
    resize_seconds: Seconds = Field(
        27.0, description="All stop for this long at a change of size (data parallel)."
    )
    extended_step: float = Field(
        1.0, ge=1, le=1e3,
        description="How much longer a data-parallel step takes while the extra is there.",
    )  # fmt: skip


class Scenario(Table):
    """Everything that a simulation depends on besides its seed and its length."""

    cluster: Cluster = Cluster()
    failures: Failures = Failures()
    costs: Costs = Costs()
    sync: Sync = Sync()
    scavenging: Scavenging = Scavenging()

    def slices(self) -> int:
        """Slices of one learner, at least one."""
        per_learner = self.cluster.chips / self.cluster.learners
        return max(1, round(per_learner / self.cluster.slice_chips))

    def failures_per_second(self) -> float:
        """Rate at which the chips of one whole learner fail: n / MTBI."""
        per_learner = self.cluster.chips / self.cluster.learners
        return per_learner / (self.failures.mtbi_years * YEAR_SECONDS)

    def step_seconds(self, learner: int) -> float:
        """What a step takes on this learner."""
        speeds = self.cluster.speeds
        return self.costs.step_seconds / speeds[learner % len(speeds)]

    def with_cell(self, learners: int, elastic: bool, chips: int) -> Scenario:
        """The same assumptions for another cluster."""
        told = {"learners": learners, "elastic": elastic, "chips": chips}
        return self.model_copy(update={"cluster": self.cluster.model_copy(update=told)})

    def with_clock(self, clock: Clock) -> Scenario:
        """The same assumptions by another failure clock."""
        return self.model_copy(
            update={"failures": self.failures.model_copy(update={"clock": clock})}
        )


def scenario_of(settings: Sequence[str], told: dict[str, dict[str, Any]]) -> Scenario:
    """The scenario of `--set` lines such as `costs.up_seconds=25`, and of what else was told.

    Raises ConfigInvalid naming the setting and the nearest known one.
    """
    tables: dict[str, dict[str, Any]] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        table, dot, key = path.strip().partition(".")
        if not (equals and dot and table and key):
            raise ConfigInvalid(f"--set {setting!r}: write it as costs.up_seconds=25")
        tables.setdefault(table, {})[key] = _value(text.strip())
    for table, values in told.items():
        tables.setdefault(table, {}).update(values)
    try:
        scenario = Scenario.model_validate(tables)
    except ValidationError as error:
        raise ConfigInvalid("; ".join(_told(fault) for fault in error.errors())) from None
    if scenario.sync.quorum > scenario.cluster.learners:
        raise ConfigInvalid(
            f"sync.quorum {scenario.sync.quorum} is more than the "
            f"{scenario.cluster.learners} learners there are"
        )
    per_step = scenario.failures_per_second() * scenario.costs.step_seconds
    if per_step > FAILURES_PER_STEP_MAX:
        raise ConfigInvalid(
            f"failures.mtbi_years {scenario.failures.mtbi_years:g}: {per_step:.3g} failures in "
            f"each step of a learner; at most {FAILURES_PER_STEP_MAX} are simulated"
        )
    return scenario


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _told(fault: Any) -> str:
    path = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"{path}: {fault['msg']}"
    near = difflib.get_close_matches(path, _known(), n=1, cutoff=0.0)
    return f"{path}: no such setting; the nearest is {near[0]}"


def _known() -> list[str]:
    return [
        f"{name}.{key}"
        for name, field in Scenario.model_fields.items()
        for key in type(field.get_default()).model_fields
    ]
