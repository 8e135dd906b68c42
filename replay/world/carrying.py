"""What a leader of the world carries out beside its turns: merges, snapshots, the last digest.

The same jobs as `decodiloco.syncer.carrying`: bytes are durable before the draft exists, trouble
of the store is tried again, and what is no longer owed is forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from decodiloco.errors import StoreUnreachable
from decodiloco.merge.fragment import Merged, merge_fragment
from decodiloco.merge.model_digest import model_digest
from decodiloco.merger.orders import Result
from decodiloco.store.blobs import BlobStore, Part
from decodiloco.store.keys import global_key, snapshot_key
from decodiloco.store.retention import Named, going, may_go
from decodiloco.store.small import put_small
from decodiloco.store.tensors import read_tensors
from decodiloco.syncer import drafting
from decodiloco.syncer.compose import Draft
from decodiloco.syncer.owed import (
    Ask,
    CloseRun,
    MergeFragment,
    RaiseHorizon,
    StoreSnapshot,
    SweepStore,
    merge_order,
)
from decodiloco.syncer.snapshot import encode_state
from decodiloco.syncer.state import State
from decodiloco.syncer.sweeping import raise_horizon
from decodiloco.times import STORE_RETRY_SECONDS_MAX
from replay.world.giving import Giving
from replay.world.model import Floats
from replay.world.places import SeenStore
from replay.world.storing import Blobs, Storing
from streams.errors import Failure

if TYPE_CHECKING:
    from replay.world.syncer import SyncerProcess

SWEPT_AT_ONCE = 8  # blobs; a world has fewer moments than a store has blobs

Made = MergeFragment | StoreSnapshot | RaiseHorizon | CloseRun
Long = Made | SweepStore


class Carrier:
    """One job a key."""

    def __init__(self, syncer: SyncerProcess, done: Callable[[str, Draft], None]) -> None:
        self._syncer, self._done = syncer, done
        self._jobs: dict[str, Job] = {}
        self._burden: Counter[str] = Counter()  # merges that each merger is asked for

    def compare(self, state: State, asks: Sequence[Ask]) -> None:
        """Starts what is newly owed, and forgets what is owed no more."""
        wanted = {ask.key: ask for ask in asks if isinstance(ask, Long)}
        for key in [key for key in self._jobs if key not in wanted]:
            self._jobs.pop(key).drop()
            self._syncer.world.hit("a job is owed no more")
        for key, ask in wanted.items():
            if key not in self._jobs:
                self._jobs[key] = Job(self._syncer, state, ask, self._done, self._burden)
                self._jobs[key].begin()

    def forget(self, key: str) -> None:
        """What this job gave was decided upon. If the ask is owed all the same, it starts anew."""
        self._jobs.pop(key, None)

    def close(self) -> None:
        """Forgets all jobs."""
        for job in self._jobs.values():
            job.drop()
        self._jobs.clear()


class Job:
    """One ask being carried out."""

    def __init__(
        self,
        syncer: SyncerProcess,
        state: State,
        ask: Long,
        done: Callable[[str, Draft], None],
        burden: Counter[str],
    ) -> None:
        self._is_wanted = True
        self._syncer, self._world = syncer, syncer.world
        self._state, self._ask, self._done = state, ask, done
        self._began = syncer.heap.now
        self._pause_seconds = 0.2
        self._burden = burden
        self._giving: Giving | None = None

    def begin(self) -> None:
        """Gives a merge away where there are mergers; else it is our own work."""
        self._given_away_or(self._work_a_while)

    def drop(self) -> None:
        """It is owed no more."""
        self._is_wanted = False
        if self._giving is not None:
            self._giving.end()

    def _given_away_or(self, here: Callable[[], None]) -> None:
        """A merger's result, if this is a merge and one makes it; otherwise what is done here."""
        ask = self._ask
        if not self._is_wanted or not isinstance(ask, MergeFragment) or not self._syncer.mergers():
            here()
            return
        self._began = self._syncer.heap.now

        def made(result: Result | None) -> None:
            if result is None:
                self._began = self._syncer.heap.now
                here()
            else:
                seconds = self._syncer.heap.now - self._began
                self._done(ask.key, drafting.from_merge(ask, result, seconds))

        self._giving = Giving(self._syncer, merge_order(self._state, ask.round), self._burden, made)
        self._giving.turn()

    def _work_a_while(self) -> None:
        """Works for a while, then reads, computes and stores."""
        seconds = self._world.case.merge_seconds
        self._syncer.work(seconds * (0.5 + self._world.random.random()), self._work)

    def _work(self) -> None:
        if not self._is_wanted:
            return
        slept = 0.0

        def sleep(seconds: float) -> None:
            nonlocal slept
            slept += seconds

        seen = SeenStore(self._world.store, lambda: self._world.sees_store(self._syncer))
        self._world.point(self._syncer, f"{self._ask.key.split()[0]} begins to read")
        if isinstance(self._ask, SweepStore):
            self._sweep(self._ask)
            return
        try:
            blobs, draft = self._carried(self._ask, seen, sleep)
        except StoreUnreachable:
            self._again()
            return
        self._syncer.later(slept, lambda: self._put(blobs, draft))

    def _carried(
        self, ask: Made, store: BlobStore, sleep: Callable[[float], None]
    ) -> tuple[Blobs, Callable[[], Draft]]:
        """What is to be stored, and the draft once it is."""
        state = self._state
        match ask:
            case MergeFragment():
                order = merge_order(state, ask.round)
                result = merge_fragment(order, store, sleep=sleep)
                blobs = result.blobs(order) if isinstance(result, Merged) else []
                self._world.merged(order, result)
                told = result.stored() if isinstance(result, Merged) else result
                return blobs, lambda: drafting.from_merge(
                    ask, told, self._syncer.heap.now - self._began
                )
            case StoreSnapshot():
                held = _Held()
                payload = encode_state(state)
                manifest = put_small(
                    held, lambda named: snapshot_key(state.run, state.position, named), payload
                )
                return held.blobs, lambda: drafting.from_snapshot(state.position, manifest)
            case RaiseHorizon():
                before = state.retention.horizon
                kept, after = (before.kept, before.position) if before else ((), 0)
                facts = self._facts(kept, after, ask.position)
                draft = raise_horizon(store, state, ask, facts)
                return [], lambda: draft
            case CloseRun():
                digest = model_digest(state.layout, newest_tensors(store, state))
                return [], lambda: drafting.while_owed(
                    ask, drafting.from_close(state.versions, digest)
                )

    def _put(self, blobs: Blobs, draft: Callable[[], Draft]) -> None:
        """Stores one blob after another; then the draft may be written."""

        def stored() -> None:
            self._done(self._ask.key, draft())

        Storing(self._world, self._syncer, stored, self._put_failed, lambda: self._is_wanted).put(
            blobs
        )

    def _put_failed(self, failure: Failure) -> None:
        if not isinstance(failure, StoreUnreachable):
            raise failure
        self._again()

    def _facts(self, kept: Sequence[int], after: int, last: int) -> list[Named]:
        """As `named_facts` reads them, of a tape that is at hand."""
        records = self._world.tape.records
        chosen = [records[position - 1] for position in kept] + records[after:last]
        return [Named(each.position, each.event) for each in chosen if may_go(each.event)]

    def _sweep(self, ask: SweepStore) -> None:
        horizon = self._state.retention.horizon
        assert horizon is not None
        facts = self._facts(horizon.kept_before, horizon.after, horizon.raised_at)
        gone = going(self._state.run, facts, horizon.position, horizon.kept)
        size_bytes = sum(manifest.bytes for _, manifest in gone)
        draft = drafting.from_sweep(ask, len(gone), size_bytes)
        self._delete([key for key, _ in gone], draft)

    def _delete(self, keys: list[str], draft: Draft) -> None:
        """Deletes a few blobs after another; then the draft may be written."""
        if not self._is_wanted:
            return
        self._world.point(self._syncer, "blobs deleted")
        if not keys:
            self._world.hit("a store is swept")
            self._done(self._ask.key, draft)
            return
        some, rest = keys[:SWEPT_AT_ONCE], keys[SWEPT_AT_ONCE:]

        def answered(result: Failure | None) -> None:
            if isinstance(result, StoreUnreachable):
                self._again()
            elif isinstance(result, Failure):
                raise result
            else:
                self._delete(rest, draft)

        def delete() -> None:
            for key in some:
                self._world.store.delete(key)

        self._world.network.call(self._syncer, "store", "put", delete, answered)

    def _again(self) -> None:
        """The store does not answer: all of it once more, later each time."""
        self._world.hit("a syncer's job is tried again")
        self._syncer.later(self._pause_seconds, lambda: self._given_away_or(self._work))
        self._pause_seconds = min(2 * self._pause_seconds, STORE_RETRY_SECONDS_MAX)


def newest_tensors(store: BlobStore, state: State) -> Iterator[tuple[str, Floats]]:
    """Every tensor's newest merged value, fragment by fragment."""
    for fragment, merged in enumerate(state.fragments):
        key = global_key(state.run, fragment, merged.version, merged.parameters)
        yield from read_tensors(store, key, merged.parameters).items()


class _Held:
    """Takes what would be stored, to be stored later."""

    url = "memory://held"

    def __init__(self) -> None:
        self.blobs: list[tuple[str, Sequence[Part]]] = []

    def put(self, key: str, parts: Sequence[Part]) -> None:
        self.blobs.append((key, parts))

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        raise AssertionError(f"{key} is not read here")

    def size(self, key: str) -> int | None:
        raise AssertionError(f"{key} is not looked at here")

    def keys(self, prefix: str) -> list[str]:
        raise AssertionError(f"{prefix} is not listed here")

    def delete(self, key: str) -> None:
        raise AssertionError(f"{key} is not deleted here")

    def close(self) -> None:
        """Nothing is held open."""
