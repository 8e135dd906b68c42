"""Branches that are rare in a run, and must all be taken in a campaign of many seeds.

A campaign that never came to one of them has not tried what it is there to try.
"""

from __future__ import annotations

from collections.abc import Mapping

from replay.world.plan import KINDS

SEEDS_ENOUGH = 100  # with fewer seeds a branch may be missed by chance

RARE = (
    "a delta holds residuals",
    "a job is owed no more",
    "a leader merges what a merger did not",
    "a leader stands down",
    "a learner carries its work over",
    "a learner is orphaned",
    "a learner leaves early",
    "a learner refreshes all to close",
    "a learner refreshes all to heal",
    "a learner's transfer is tried again",
    "a letter comes twice",
    "a life goes on with residuals",
    "a merge is abandoned",
    "a merge is made twice",
    "a merger fails",
    "a merger is given up",
    "a merger merges",
    "a merger merges what is merged already",
    "a process ends of LifeEnded",
    "a store is swept",
    "a syncer begins from a snapshot",
    "a syncer's job is tried again",
    "a takeover is lost to another",
    "an answer comes after the round is merged",
    "an append has no answer",
    "an append is refused",
    "an append without an answer was stored",
    "the answer to a call is lost: append",
    "the answer to a call is lost: call",
    "the answer to a call is lost: put",
    "the answer to a call is lost: say",
    "the answer to a call is lost: transfer",
    "the store answers with an error",
    "two mergers store the same",
)

POINTS: dict[str, tuple[str, ...]] = {
    "learner": (
        "adopted",
        "checkpoint stored",
        "checkpoint_stored acknowledged",
        "checkpoint_stored composed",
        "checkpoint_stored folded",
        "copied",
        "delta stored",
        "delta_offered acknowledged",
        "delta_offered composed",
        "delta_offered folded",
        "fetched",
        "join composed",
        "joined",
        "learner_joined acknowledged",
        "learner_left acknowledged",
        "learner_left composed",
    ),
    "merger": (
        "global stored",
        "merge begins to read",
        "outer stored",
        "report stored",
    ),
    "syncer": (
        "append answered",
        "batch sent",
        "batch settled",
        "blobs deleted",
        "checkpoint_stored composed",
        "delta_offered composed",
        "delta_refused composed",
        "fragment_merged composed",
        "global stored",
        "horizon_raised composed",
        "inbox read",
        "learner_joined composed",
        "merge begins to read",
        "outer stored",
        "raise begins to read",
        "report stored",
        "round_opened composed",
        "snapshot begins to read",
        "snapshot stored",
        "snapshot_stored composed",
        "store_swept composed",
        "sweep begins to read",
        "takeover composed",
        "takeover stored",
        "window_closed composed",
    ),
}
"""Where a process may be killed: between store write, word, append and acknowledgement."""


def declared() -> tuple[str, ...]:
    """Everything that a campaign must come to."""
    kills = [f"a {role} is killed: {point}" for role in sorted(POINTS) for point in POINTS[role]]
    return (*RARE, *kills, *(f"hardship {kind}" for kind in sorted(KINDS)))


def missed(taken: Mapping[str, int], seeds: int) -> tuple[str, ...]:
    """Declared branches that so many seeds never took; none are asked of a few seeds."""
    if seeds < SEEDS_ENOUGH:
        return ()
    return tuple(branch for branch in declared() if not taken.get(branch))
