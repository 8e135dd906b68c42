"""A merge from its order to its stored bytes: what a syncer does, and a merger for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from decodiloco.merge.fragment import Abandoned, Merged, MergeOrder, merge_fragment
from decodiloco.merge.order import StoredMerge
from decodiloco.store.blobs import BlobStore


def carry_out(
    order: MergeOrder,
    store: BlobStore,
    threads: int = 1,
    sleep: Callable[[float], None] = time.sleep,
) -> StoredMerge | Abandoned:
    """Merges, and stores the new version before it returns. Raises what `merge_fragment` does.

    Done twice, by whomever, it stores the same bytes under the same keys.
    """
    result = merge_fragment(order, store, threads, sleep)
    if not isinstance(result, Merged):
        return result
    for key, parts in result.blobs(order):
        store.put(key, parts)
    return result.stored()
