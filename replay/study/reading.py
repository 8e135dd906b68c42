"""What a tape says about a case besides its losses: time, merges, fates, goodput. Pure.

Knows the syncer's fold; it must not know how tapes are made or models are trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decodiloco.opening import Opening
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.state import State
from streams.envelope import Envelope
from streams.events import FragmentMerged, LearnerJoined, RoundOpened, RunClosing


@dataclass(frozen=True, slots=True)
class Read:
    """A run from its first round to its closing; `merged_share` and `tokens` are of its end.

    `steps_between` counts steps of the base's learners between two versions of a fragment, on
    average; `goodput_share` is the time of their steps over all time of all of them.
    """

    elapsed_seconds: float
    merges: int
    per_merge: float
    steps_between: float
    goodput_share: float
    merged_share: float
    tokens: int
    lives: int


def read_tape(records: Sequence[Envelope], opening: Opening, step_seconds: Sequence[float]) -> Read:
    """Folds a tape of learners `l00`, `l01`, ... whose steps take so many seconds."""
    state = begin(opening)
    closing: State | None = None
    first = last = 0.0
    contributors: list[int] = []
    lives = 0
    for envelope in records:
        state = fold(state, envelope)
        match envelope.event:
            case RoundOpened(round=1):
                first = envelope.time_seconds
            case RunClosing():
                closing, last = state, envelope.time_seconds
            case FragmentMerged(contributions=offers):
                contributors.append(len(offers))
            case LearnerJoined():
                lives += 1
            case _:
                pass
    assert closing is not None, "a synthetic run comes to its end"
    base = [closing.learners[f"l{number:02}"] for number in range(len(step_seconds))]
    steps = math.fsum(learner.learner_step for learner in base) / len(base)
    versions = math.fsum(closing.versions) / len(closing.versions)
    return Read(
        elapsed_seconds=last - first,
        merges=len(contributors),
        per_merge=sum(contributors) / max(1, len(contributors)),
        steps_between=steps / max(1.0, versions),
        goodput_share=_worked(closing, step_seconds) / (len(base) * (last - first)),
        merged_share=_merged_share(state),
        tokens=state.tokens,
        lives=lives,
    )


def _worked(state: State, step_seconds: Sequence[float]) -> float:
    """Seconds of whole steps, each by its share of sequences, that the base's learners trained."""
    run = state.config
    whole = run.training.batch_sequences * run.model.context
    return math.fsum(
        state.learners[f"l{number:02}"].tokens_trained / whole * seconds
        for number, seconds in enumerate(step_seconds)
    )


def _merged_share(state: State) -> float:
    fragments = range(len(state.fragments))
    merged = sum(
        learner.fates(fragment)["merged"]
        for learner in state.learners.values()
        for fragment in fragments
    )
    return merged / max(1, state.tokens * len(fragments))
