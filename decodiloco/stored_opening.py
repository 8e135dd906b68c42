"""The opening of a run as whoever comes into it reads it: by its first fact, from its store.

Learner, evaluator, syncer and visitor read it here; `replay` reads the bytes in its own way, and
hands them to the same check.
"""

from __future__ import annotations

from decodiloco.opening import Opening, opening_of
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import opening_key
from decodiloco.store.small import read_small
from streams.events import RunOpened


def read_opening(store: BlobStore, opened: RunOpened) -> Opening:
    """The opening that RunOpened names: its bytes, and the run, settings and layout in it.

    Raises BlobMissing, BlobCorrupt or StoreUnreachable.
    """
    key = opening_key(opened.run, opened.opening)
    return opening_of(opened, read_small(store, key, opened.opening))
