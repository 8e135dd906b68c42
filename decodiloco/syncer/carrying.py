"""Asks that take long, carried out in threads: merges, snapshots, sweeps, the closing digest.

Each gives a draft when it is done. Bytes are durable before the draft exists. A transient
trouble of the store is tried again; an ask that is no longer owed is forgotten. A merge that waits
for bytes holds up no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from decodiloco.errors import StoreUnreachable
from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.model_digest import model_digest
from decodiloco.merge.room import WAITING_MAX, Room
from decodiloco.places import Places
from decodiloco.store.keys import global_key, snapshot_key
from decodiloco.store.small import put_small
from decodiloco.store.tensors import open_tensors
from decodiloco.syncer import drafting
from decodiloco.syncer.compose import Draft
from decodiloco.syncer.mergers import Mergers
from decodiloco.syncer.owed import Ask, CloseRun, MergeFragment, StoreSnapshot, merge_order
from decodiloco.syncer.snapshot import encode_state
from decodiloco.syncer.state import State
from decodiloco.syncer.sweeping import Letting, facts_for, let_go
from decodiloco.telemetry import log
from decodiloco.times import STORE_RETRY_SECONDS_MAX
from streams.errors import Failure, ServerUnreachable

Made = MergeFragment | StoreSnapshot | CloseRun
Long = Made | Letting


class Carrier:
    """Runs what is owed and takes long; one job a key, `jobs` at once.

    Merges go to the run's mergers where there are any; those are not counted.
    """

    def __init__(
        self,
        places: Places,
        jobs: int,
        done: Callable[[str, Draft], None],
        mergers: Mergers | None = None,
    ) -> None:
        self._places = places
        self._mergers = mergers
        self._done = done
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._room = Room(jobs)
        self._pool = ThreadPoolExecutor(max_workers=jobs + WAITING_MAX, thread_name_prefix="merge")

    def compare(self, state: State, asks: tuple[Ask, ...]) -> None:
        """Starts what is newly owed, and forgets what is owed no more."""
        wanted = {ask.key: ask for ask in asks if isinstance(ask, Long)}
        for key in [key for key in self._jobs if key not in wanted]:
            self._jobs.pop(key).cancel()
        for key, ask in wanted.items():
            if key not in self._jobs:
                self._jobs[key] = asyncio.create_task(self._carry(state, ask), name=key)

    def forget(self, key: str) -> None:
        """What this job gave was decided upon. If the ask is owed all the same, it starts anew."""
        self._jobs.pop(key, None)

    def check(self) -> None:
        """Raises what a job has died of."""
        for key, job in list(self._jobs.items()):
            if job.done() and not job.cancelled():
                error = job.exception()
                if error is not None:
                    del self._jobs[key]
                    raise error

    async def close(self) -> None:
        """Stops all jobs; what runs in a thread ends by itself and is not recorded."""
        jobs = list(self._jobs.values())
        self._jobs.clear()
        for job in jobs:
            job.cancel()
        self._room.close()
        await asyncio.gather(*jobs, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _carry(self, state: State, ask: Long) -> None:
        loop = asyncio.get_running_loop()
        pause_seconds = 0.2
        while True:
            try:
                given = await self._given_away(state, ask)
                if given is not None:
                    draft = given
                elif isinstance(ask, Letting):
                    draft = await self._let_go(state, ask)
                else:
                    draft = await loop.run_in_executor(self._pool, self._carried, state, ask)
            except (StoreUnreachable, ServerUnreachable) as error:
                log("syncer").warning("a server does not answer", ask=ask.key, error=str(error))
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, STORE_RETRY_SECONDS_MAX)
                continue
            except Failure as error:
                if not isinstance(ask, Letting):
                    raise
                # To keep too much harms nobody: the run goes on, and the next leader tries again.
                log("syncer").error("nothing is let go of", ask=ask.key, error=str(error))
                return
            self._done(ask.key, draft)
            return

    async def _given_away(self, state: State, ask: Long) -> Draft | None:
        """What a merger made of a merge; None for what is ours to carry out."""
        if self._mergers is None or not isinstance(ask, MergeFragment):
            return None
        began = time.monotonic()
        result = await self._mergers.carried_out(merge_order(state, ask.round))
        if result is None:
            return None
        return drafting.from_merge(ask, result, time.monotonic() - began)

    async def _let_go(self, state: State, ask: Letting) -> Draft:
        facts = await facts_for(self._places, state, ask)
        work = partial(let_go, self._places.store, state, ask, facts, self._room.check)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _carried(self, state: State, ask: Made) -> Draft:
        with self._room as room:
            return carry(self._places, state, ask, room.sleep)


def carry(
    places: Places, state: State, ask: Made, sleep: Callable[[float], None] = time.sleep
) -> Draft:
    """Carries one ask out, in this thread; the bytes are stored when it returns.

    It waits for absent bytes by `sleep`, which takes seconds.
    """
    match ask:
        case MergeFragment():
            return _merge(places, state, ask, sleep)
        case StoreSnapshot():
            payload = encode_state(state)
            manifest = put_small(
                places.store, lambda m: snapshot_key(state.run, state.position, m), payload
            )
            return drafting.from_snapshot(state.position, manifest)
        case CloseRun():
            digest = model_digest(state.layout, newest_tensors(places, state))
            return drafting.while_owed(ask, drafting.from_close(state.versions, digest))


def _merge(
    places: Places, state: State, ask: MergeFragment, sleep: Callable[[float], None]
) -> Draft:
    began = time.monotonic()
    result = carry_out(merge_order(state, ask.round), places.store, sleep=sleep)
    return drafting.from_merge(ask, result, time.monotonic() - began)


def newest_tensors(places: Places, state: State) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor's newest merged value, fragment by fragment."""
    for fragment, merged in enumerate(state.fragments):
        key = global_key(state.run, fragment, merged.version, merged.parameters)
        blob = open_tensors(places.store, key, merged.parameters)
        for name in blob.names:
            yield name, blob.read(name)
