"""Whether a round's window may close, and why: a pure verdict with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from decodiloco.syncer.rounds import answers
from decodiloco.syncer.state import Round, State


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may happen to a window: `wait`, `close` at once, or close `later` at its end.

    `quorum_at`: position of the K-th learner's offer, 0 below the quorum. `missed`: live
    learners that have not answered.
    """

    action: str
    reason: str
    quorum_at: int
    missed: tuple[str, ...]


def verdict(state: State, round_: Round) -> Verdict:
    """Looks at the offers made for this round; late ones of earlier rounds do not count."""
    found = answers(state, round_)
    positions = sorted(offer.position for offer in found)
    answered = {offer.learner for offer in found}
    missed = tuple(learner.id for learner in state.live if learner.id not in answered)
    needed = state.config.quorum
    if len(positions) < needed:
        return Verdict("wait", f"{len(positions)} of {needed} answered", 0, missed)
    quorum_at = positions[needed - 1]
    if not missed:
        return Verdict("close", "all answered", quorum_at, missed)
    return Verdict("later", "grace ended", quorum_at, missed)
