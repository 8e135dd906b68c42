"""What the study compares: its cases, gathered into parts. Knows no tape and trains nothing.

A case is told by what differs from the first one, and the same case may stand in several parts:
it is trained once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from streams.errors import AskedWrongly

Rule = Literal["radial", "mean"]
Adopted = Literal["overwrite", "carry", "blend"]
Coding = Literal["fp32", "bf16", "int8", "int4"]

RULES: tuple[Rule, ...] = ("mean", "radial")
ADOPTED: tuple[Adopted, ...] = ("overwrite", "carry", "blend")
CHIPS = (0, 1_200_000, 2_400_000)
LEARNERS = (2, 4, 8, 16)
TRANSFERS_STEPS = (0.2, 1.0, 3.0)
MOMENTA = (0.0, 0.5, 0.9)
INNER_STEPS = (6, 12, 24, 48)
EXTRA_PERCENT = (0, 25, 50, 100, 300)
SAME_TIME_PERCENT = {25: 90, 50: 83, 100: 75, 300: 62}  # steps of the base alone in that time


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of run. `chips` 0 means that nothing fails; `slower_percent` that half do.

    `learners` 1 is elastic data parallelism; `extra_percent` are further learners that are there
    for half of the work; `steps_percent` is how much of the study's tokens is trained. `feedback`
    None is as the codec has it by default.
    """

    learners: int = 4
    chips: int = 0
    rule: Rule = "radial"
    embedding_rule: Rule = "mean"
    quorum: int = 1
    grace: bool = True
    slower_percent: int = 0
    transfer_steps: float = 0.2
    adopted: Adopted = "overwrite"
    momentum: float = 0.5
    inner_steps: int = 12
    extra_percent: int = 0
    steps_percent: int = 100
    codec: Coding = "bf16"
    feedback: bool | None = None

    @property
    def name(self) -> str:
        """What differs from the first case, such as `learners=8 rule=mean`."""
        told = [
            f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default or field.name == "learners"
        ]
        return " ".join(told)

    @property
    def learners_most(self) -> int:
        """Learners that there are at most, the extra ones among them."""
        return self.learners + round(self.learners * self.extra_percent / 100)

    @property
    def is_data_parallel(self) -> bool:
        """Whether there is one job with no syncer."""
        return self.learners == 1


BASE = Case()


def learners_cases() -> list[Case]:
    """Numbers of learners under failures, and data parallelism (paper table 11)."""
    return [Case(learners=m, chips=chips) for m in (1, *LEARNERS) for chips in CHIPS]


def rules_cases() -> list[Case]:
    """Merge rules of model and embedding (paper tables 8 and 9)."""
    return [
        Case(learners=m, rule=rule, embedding_rule=embedding)
        for m in (8, 16)
        for rule in RULES
        for embedding in RULES
    ]


def quorum_cases() -> list[Case]:
    """Quorum and grace where half of the learners are slower (paper table 5)."""
    return [
        Case(learners=8, quorum=8, grace=False, slower_percent=18),
        Case(learners=8, quorum=1, grace=False, slower_percent=18),
        Case(learners=8, quorum=1, grace=True, slower_percent=18),
        Case(learners=8),
    ]


def adoption_cases() -> list[Case]:
    """How merged fragments come into live parameters, by the time that a transfer takes."""
    return [
        Case(adopted=kind, transfer_steps=steps) for steps in TRANSFERS_STEPS for kind in ADOPTED
    ]


def momentum_cases() -> list[Case]:
    """Outer momentum against H."""
    return [Case(momentum=mu, inner_steps=steps) for mu in MOMENTA for steps in INNER_STEPS]


def scavenging_cases() -> list[Case]:
    """Extra learners for half of the work (paper table 4), and the base alone in their time."""
    return [
        *(Case(extra_percent=percent) for percent in EXTRA_PERCENT),
        *(Case(steps_percent=percent) for percent in SAME_TIME_PERCENT.values()),
    ]


PLAIN = Case(feedback=False)


def codecs_cases() -> list[Case]:
    """Codecs of deltas, and what error feedback does for them (paper section D.3).

    bf16 has a case of its own here, told apart by `feedback`, so that all of them are trained by
    one build on one machine.
    """
    return [
        Case(codec="fp32"),
        PLAIN,
        Case(feedback=True),
        Case(codec="int8"),
        Case(codec="int8", feedback=True),
        Case(codec="int4"),
        Case(codec="int4", feedback=False),
    ]


PARTS = {
    "learners": learners_cases,
    "rules": rules_cases,
    "quorum": quorum_cases,
    "adoption": adoption_cases,
    "momentum": momentum_cases,
    "scavenging": scavenging_cases,
    "codecs": codecs_cases,
}


def cases_of(parts: Sequence[str]) -> list[Case]:
    """The cases of these parts, each once, in order; of all parts when none is named.

    Raises AskedWrongly for a part that is not there.
    """
    for part in parts:
        if part not in PARTS:
            raise AskedWrongly(f"the study has no part {part!r}; it has {', '.join(PARTS)}")
    found = [case for part in (parts or PARTS) for case in PARTS[part]()]
    return list(dict.fromkeys(found))
