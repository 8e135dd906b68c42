"""`decodiloco retain`: what bytes a run would let go of, told; and asked for, with --apply.

Reads the tape alone. Nothing is deleted here: the word goes to an inbox, and the syncer that
leads raises the horizon and sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from decodiloco.close import SPEAKER, ask, new_life
from decodiloco.store.retention import Named, Needs, going, kept_below, may_go
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.state import State
from decodiloco.visit import Address, Visit, records_to, visited
from streams.errors import AskedWrongly
from streams.events import RetentionAsked


@dataclass(frozen=True, slots=True)
class Told:
    """What would go, were the run's last fact so far the horizon.

    `bytes` and `blobs` are those that facts name and no horizon let go of yet; of these
    `going_bytes` and `going_blobs` would go. `asked` says what stands on the tape, if it was asked.
    """

    run: str
    keep_merges_before: int
    keep_merges: int
    horizon: int
    position: int
    step: int
    blobs: int
    bytes: int
    going_blobs: int
    going_bytes: int
    asked: str = ""

    def as_plain(self) -> dict[str, Any]:
        """The fields that --json prints."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The same for people."""
        before = _merges(self.keep_merges_before)
        yield (
            f"run {self.run} at step {self.step}, position {self.position}: keeps {before}, exact "
            f"from position {self.horizon or 1} on; {self.blobs:,} blobs, {_size(self.bytes)}"
        )
        if self.keep_merges:
            yield (
                f"to keep {_merges(self.keep_merges)}: the next snapshot becomes the horizon once "
                f"{self.keep_merges} merges stand behind it, and so on, about every "
                f"{self.keep_merges} merges"
            )
            yield (
                f"from what is there now {self.going_blobs:,} blobs would go, "
                f"{_size(self.going_bytes)} of {_size(self.bytes)}"
            )
            yield (
                "exact stay: every fact, count and digest from the first on; every merge, model "
                "and momentum from the horizon on. Older ones cannot be made again"
            )
        else:
            yield "to keep everything: no horizon is raised any more; what is gone stays gone"
        yield self.asked or "nothing was asked: give --apply to ask for it"


async def retain(address: Address, keep_merges: int, apply: bool) -> Told:
    """Tells what would go, and asks the syncer for it if `apply`.

    Raises AskedWrongly for a run that closes, and Trouble when no syncer takes the word up.
    """
    async with visited(address, SPEAKER) as visit:
        state, facts = await _read(visit)
        told = told_of(state, facts, keep_merges)
        if not apply:
            return told
        if state.closing is not None:
            raise AskedWrongly(
                f"run {state.run}: it is {'closed' if state.closed else 'closing'}, and keeps what "
                "it has. Its prefix in the store can be deleted as a whole, once nobody asks"
            )
        word = RetentionAsked(speaker=SPEAKER, life=new_life(), said=1, keep_merges=keep_merges)
        asked = await ask(visit, word, lambda *fact: _stands(word, *fact), state.position)
        return replace(told, asked=asked)


def told_of(state: State, facts: list[Named], keep_merges: int) -> Told:
    """What these facts' blobs come to; `facts` name all that may go and is not gone yet."""
    needs = Needs(frozenset(state.offers), state.versions, state.versions)
    gone = going(state.run, facts, state.position, kept_below(facts, state.position, needs))
    every = going(state.run, facts, state.position, ())
    horizon = state.retention.horizon
    return Told(
        run=state.run,
        keep_merges_before=state.keep_merges,
        keep_merges=keep_merges,
        horizon=horizon.position if horizon else 0,
        position=state.position,
        step=state.step,
        blobs=len(every),
        bytes=sum(manifest.bytes for _, manifest in every),
        going_blobs=len(gone) if keep_merges else 0,
        going_bytes=sum(manifest.bytes for _, manifest in gone) if keep_merges else 0,
    )


async def _read(visit: Visit) -> tuple[State, list[Named]]:
    """The run as it stands, and the facts whose bytes no horizon let go of."""
    state, facts = begin(visit.opening), []
    last = await visit.tape.last()
    async for envelope in records_to(visit.tape, last):
        state = fold(state, envelope)
        if may_go(envelope.event):
            facts.append(Named(envelope.position, envelope.event))
    horizon = state.retention.horizon
    if horizon is not None:
        kept = frozenset(horizon.kept)
        facts = [each for each in facts if each[0] > horizon.position or each[0] in kept]
    return state, facts


def _stands(word: RetentionAsked, event: object, position: int) -> str | None:
    return f"asked: it stands on the tape at position {position}" if event == word else None


def _merges(keep_merges: int) -> str:
    return f"at least the newest {keep_merges} merges" if keep_merges else "everything"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
