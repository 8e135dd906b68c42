"""A tape folded again by the syncer's own machine, each step checked. Pure: tape in, states out.

What the machine trusts while a run is live is checked here: the rules, the digest of the state
that each merge recorded, and that a fact makes sense where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from decodiloco.opening import Opening, opening_fault
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from decodiloco.syncer.stored_snapshot import check_rules
from replay.errors import Differs
from streams.envelope import Envelope
from streams.events import Fact, FragmentMerged, RunOpened, SyncerTookOver
from streams.frozen import made


@dataclass(frozen=True)
class Folded:
    """One fact, with the state before and after it."""

    before: State
    envelope: Envelope
    after: State


Inspect = Callable[[State, Envelope], None]


def refold(
    envelopes: Iterable[Envelope], opening: Opening, inspect: Inspect | None = None
) -> Iterator[Folded]:
    """Folds a tape from its first fact on; `inspect` sees each fact before it is folded.

    Raises ChainBroken, Differs or RulesUnknown at the first fact that does not follow.
    """
    state = begin(opening)
    for envelope in envelopes:
        if inspect is not None:
            inspect(state, envelope)
        after = next_state(state, envelope)
        yield made(Folded, before=state, envelope=envelope, after=after)
        state = after


def next_state(state: State, envelope: Envelope) -> State:
    """The state one fact later, if the fact follows from what stands before it.

    Raises ChainBroken, Differs or RulesUnknown where it does not.
    """
    event = envelope.event
    position = envelope.position
    check = CHECKS.get(type(event))
    if check is not None:
        check(state, event, position)
    try:
        return fold(state, envelope)
    except (AssertionError, LookupError, ValueError) as error:
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        raise Differs(
            f"{event.kind} cannot follow from what stands before ({told})", position
        ) from error


def _check_opening(state: State, event: RunOpened, position: int) -> None:
    fault = opening_fault(event, state.opening)
    if fault is not None:
        raise Differs(fault, position)
    _check_rules(state, event, position)


def _check_rules(_: State, event: RunOpened | SyncerTookOver, position: int) -> None:
    check_rules(event.rules, f"position {position}")


def _check_digest(state: State, event: FragmentMerged, position: int) -> None:
    found = state_digest(state)
    if found != event.state_digest:
        raise Differs(
            f"the state before this merge has digest {found.hex()[:16]}, the syncer recorded "
            f"{event.state_digest.hex()[:16]}; the fold is not what it was",
            position,
        )


CHECKS: Mapping[type[Fact], Callable[[State, Any, int], None]] = {
    RunOpened: _check_opening,
    SyncerTookOver: _check_rules,
    FragmentMerged: _check_digest,
}
"""What is checked of a fact before it is folded, and the machine trusts while a run is live."""
