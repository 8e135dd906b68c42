"""Which cut of the merged model to evaluate next, folded from the tape.

Pure: no clock, no store, no torch. A cut is named by the run's step, since every merge makes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from streams.envelope import Envelope
from streams.events import EvaluationReported, FragmentMerged, RoundOpened, RunClosed
from streams.manifest import Manifest

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Cut:
    """One state of the merged model: every fragment at its newest version after `step` merges."""

    step: int
    versions: tuple[int, ...]
    tokens: int
    parameters: tuple[Manifest, ...]

    def merged(self, fact: FragmentMerged) -> Cut:
        """The cut after one more merge."""
        return replace(
            self,
            step=fact.step,
            versions=_with(self.versions, fact.fragment, fact.version),
            parameters=_with(self.parameters, fact.fragment, fact.parameters),
        )


@dataclass(slots=True)
class Watch:
    """What the tape has told so far, and which cut is to be evaluated next.

    `reported` holds the steps that were evaluated on our data: those on the tape, and our own.
    """

    every_merges: int
    dataset_digest: bytes
    opening: Cut
    newest: Cut
    reported: set[int] = field(default_factory=set)
    admitted: set[int] = field(default_factory=set)
    closed: RunClosed | None = None

    def fold(self, envelope: Envelope) -> None:
        """Takes in the next fact."""
        match envelope.event:
            case FragmentMerged() as fact:
                self.newest = self.newest.merged(fact)
            case RoundOpened(tokens=tokens):
                self.newest = replace(self.newest, tokens=tokens)
            case EvaluationReported() as fact if fact.dataset_digest == self.dataset_digest:
                self.reported.add(fact.step)
                self.admitted.add(fact.step)
            case RunClosed() as fact:
                self.newest = replace(self.newest, tokens=fact.tokens)
                self.closed = fact

    def due(self, caught_up: bool) -> Cut | None:
        """The cut to evaluate now: the opening once, then only ever the newest.

        One that falls behind skips cuts, and one that reads old facts waits until it has read
        them all.
        """
        if not caught_up:
            return None
        if 0 not in self.reported:
            return self.opening
        if self.newest.step in self.reported:
            return None
        ripe = self.newest.step >= max(self.reported) + self.every_merges
        return self.newest if ripe or self.closed is not None else None

    @property
    def all_said(self) -> bool:
        """Whether the run is closed and its last cut is evaluated, on the tape or on its way."""
        return self.closed is not None and self.newest.step in self.reported

    @property
    def finished(self) -> bool:
        """Whether the run is closed and its last cut stands evaluated on the tape."""
        return self.closed is not None and self.newest.step in self.admitted


def _with(values: tuple[Value, ...], index: int, value: Value) -> tuple[Value, ...]:
    return (*values[:index], value, *values[index + 1 :])
