"""One merge from a store, and the memory it took: `one_merge STORE`, with its order on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from decodiloco.merge.fragment import Merged, merge_fragment
from decodiloco.merge.self_test import self_test
from decodiloco.store.open_store import open_store
from tests.bench.stored import order_of


def peak() -> int:
    """The most that was in memory at once, in KiB. `getrusage` would tell of who started this."""
    told = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in told if line.startswith("VmHWM"))


def main() -> None:
    """Merges, stores, and prints the peak before and after."""
    store, order = open_store(sys.argv[1]), order_of(sys.stdin.read())
    self_test()
    before = peak()
    merged = merge_fragment(order, store)
    assert isinstance(merged, Merged), merged
    for key, parts in merged.blobs(order):
        store.put(key, parts)
    print(json.dumps([before, peak()]))


if __name__ == "__main__":
    main()
