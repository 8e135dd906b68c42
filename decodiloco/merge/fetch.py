"""A store read with patience: what is not there yet is asked for again, within a limit.

Knows ranges of bytes and how to wait, by a function that is handed in; nothing of tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from decodiloco.errors import BlobMissing, StoreUnreachable
from decodiloco.store.tensors import Part, Ranges
from decodiloco.times import MERGE_PAUSE_SECONDS, MERGE_PAUSE_SECONDS_MAX


class PatientStore:
    """Reads ranges for one merge; all of its waits together last at most `seconds_max`.

    The limit is shared, so many absent blobs hold a merge no longer than one. When it is spent,
    each read still gets one attempt.
    """

    def __init__(self, store: Ranges, seconds_max: float, sleep: Callable[[float], None]) -> None:
        assert seconds_max >= 0
        self._store = store
        self._left_seconds = seconds_max
        self._sleep = sleep
        self._lock = threading.Lock()

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        """Exactly `stop - start` bytes, or the store's last BlobMissing or StoreUnreachable."""
        pause_seconds: float = MERGE_PAUSE_SECONDS
        while True:
            try:
                return self._store.read(key, start, stop, anew)
            except (BlobMissing, StoreUnreachable):
                if not self._wait(pause_seconds):
                    raise
            pause_seconds = min(2 * pause_seconds, MERGE_PAUSE_SECONDS_MAX)

    def _wait(self, pause_seconds: float) -> bool:
        with self._lock:
            granted_seconds = min(pause_seconds, self._left_seconds)
            self._left_seconds -= granted_seconds
        if granted_seconds <= 0:
            return False
        self._sleep(granted_seconds)
        return True
