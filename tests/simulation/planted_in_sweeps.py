"""Faults in what a horizon lets go of, and when. See `planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decodiloco.store.retention import going
from decodiloco.syncer import horizon, sweeping
from decodiloco.syncer.state import State
from replay.world import carrying
from tests.simulation.planting import Bug, Change


def _without_offers() -> list[Change]:
    right = sweeping.kept_below

    def wrong(facts: Any, at: int, needs: Any) -> Any:
        return right(facts, at, replace(needs, offers=()))

    return [(sweeping, "kept_below", wrong)]


def _without_the_base() -> list[Change]:
    right = sweeping.kept_below

    def wrong(facts: Any, at: int, needs: Any) -> Any:
        return right(facts, at, replace(needs, versions=needs.newest))

    return [(sweeping, "kept_below", wrong)]


def _without_checkpoints() -> list[Change]:
    right = sweeping.kept_below

    def wrong(facts: Any, at: int, needs: Any) -> Any:
        return right([each for each in facts if each.event.kind != "checkpoint_stored"], at, needs)

    return [(sweeping, "kept_below", wrong)]


def _too_early() -> list[Change]:
    def always(state: State) -> bool:
        return True

    return [(horizon, "is_ripe", always)]


def _above_too() -> list[Change]:
    def wrong(run: str, facts: Any, at: int, kept: Any) -> Any:
        return going(run, facts, at + 10, kept)

    return [(carrying, "going", wrong)]


def _before_the_fact() -> list[Change]:
    right = carrying.raise_horizon

    def wrong(store: Any, state: State, ask: Any, facts: Any) -> Any:
        draft = right(store, state, ask, facts)
        for key, _ in going(state.run, facts, ask.position, draft.decide(state).kept):
            store.delete(key)
        return draft

    return [(carrying, "raise_horizon", wrong)]


NEEDED, BELOW = "horizon keeps what is needed", "only below the horizon"

BUGS: dict[str, Bug] = {
    "open offers go": Bug(
        "A horizon lets go of offers that were open there.", NEEDED, _without_offers, 12
    ),
    "base version goes": Bug(
        "A horizon keeps the newest versions, and not those that merges begin with.", NEEDED,
        _without_the_base, 12,
    ),
    "checkpoints go": Bug(
        "A horizon lets go of every checkpoint below it.", NEEDED, _without_checkpoints, 12
    ),
    "horizon too early": Bug(
        "A snapshot is a horizon as soon as it is stored.", NEEDED, _too_early, 12
    ),
    "swept above": Bug(
        "A sweep goes ten facts further than the horizon.", BELOW, _above_too, 12
    ),
    "swept before the fact": Bug(
        "Blobs are deleted before the horizon stands on the tape.", BELOW, _before_the_fact, 12
    ),
}  # fmt: skip
