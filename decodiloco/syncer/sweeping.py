"""A leader's horizon raised and its store swept: the two asks of retention, carried out.

Nothing is deleted before the fact that says so is folded, and no horizon is raised to a snapshot
that cannot be read, or whose parameters and momentum are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.places import Places
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, outer_key, report_key
from decodiloco.store.retention import Named, Needs, going, kept_below
from decodiloco.store.sweep import named_facts, sweep
from decodiloco.syncer import drafting
from decodiloco.syncer.compose import Draft
from decodiloco.syncer.owed import RaiseHorizon, SweepStore
from decodiloco.syncer.state import State
from decodiloco.syncer.stored_snapshot import read_snapshot
from streams.manifest import Manifest
from streams.parts import KEPT_MAX

Letting = RaiseHorizon | SweepStore


async def facts_for(places: Places, state: State, ask: Letting) -> list[Named]:
    """What an ask has to know of the tape; read on the event loop, before the thread begins."""
    horizon = state.retention.horizon
    if isinstance(ask, RaiseHorizon):
        kept = horizon.kept if horizon else ()
        after = horizon.position if horizon else 0
        return await named_facts(places.tape, kept, after, ask.position)
    assert horizon is not None
    return await named_facts(places.tape, horizon.kept_before, horizon.after, horizon.raised_at)


def let_go(
    store: BlobStore,
    state: State,
    ask: Letting,
    facts: Collection[Named],
    check: Callable[[], None],
) -> Draft:
    """Carries one of the two asks out, in this thread; `check` may break a sweep off."""
    if isinstance(ask, RaiseHorizon):
        return raise_horizon(store, state, ask, facts)
    horizon = state.retention.horizon
    assert horizon is not None
    gone = going(state.run, facts, horizon.position, horizon.kept)
    sweep(store, [key for key, _ in gone], check)
    size_bytes = sum(manifest.bytes for _, manifest in gone)
    return drafting.from_sweep(ask, len(gone), size_bytes)


def raise_horizon(
    store: BlobStore, state: State, ask: RaiseHorizon, facts: Collection[Named]
) -> Draft:
    """Reads the snapshot, looks for the bytes that merges behind it begin with, and counts.

    Raises BlobMissing or BlobCorrupt where these are not as named.
    """
    snapshot = state.retention.next
    assert snapshot is not None and snapshot.position == ask.position
    there = read_snapshot(store, state.opening, snapshot.position, snapshot.manifest)
    for key, manifest in _begins_with(there):
        if store.size(key) != manifest.bytes:
            raise BlobMissing(f"blob {key}, with which the horizon would begin, is not there whole")
    needs = Needs(frozenset(there.offers), there.versions, state.versions)
    kept = kept_below(facts, ask.position, needs)
    if len(kept) > KEPT_MAX:
        raise BlobCorrupt(
            f"{len(kept)} facts below position {ask.position} still need their bytes; a horizon "
            f"can name {KEPT_MAX}"
        )
    return drafting.from_horizon(ask, snapshot.manifest, kept)


def _begins_with(state: State) -> Iterator[tuple[str, Manifest]]:
    """Parameters, momentum and report of each fragment: what its next merge is made from."""
    for fragment, merged in enumerate(state.fragments):
        version = merged.version
        yield global_key(state.run, fragment, version, merged.parameters), merged.parameters
        if merged.momentum is not None and merged.report is not None:
            yield outer_key(state.run, fragment, version, merged.momentum), merged.momentum
            yield report_key(state.run, merged.round, merged.report), merged.report
