"""Whether the compiled loops are there: loaded when first asked for, or beside the work.

A machine that never compiled them takes seconds to, and any other half of one. The definition gives
the same bits without them, so a process that is in a hurry need not wait: it defers them, and has
them loaded by a thread once it has something to merge. Knows no tensors.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

from streams.errors import Trouble

_LOOPS = "decodiloco.merge.compiled"

_lock = threading.Lock()
_loading: Future[None] | None = None
_is_deferred = False


def defer() -> None:
    """From now on nothing waits for the loops: until `load_beside` has them they are not ready."""
    global _is_deferred
    _is_deferred = True


def load_beside(then: Callable[[], None]) -> None:
    """Begins to load them, once in a process, and calls `then`, in that thread, when they are.

    Whatever fails is told by the next `are_ready`.
    """
    global _loading
    with _lock:
        if _loading is not None:
            return
        _loading = Future()
    threading.Thread(target=_load, args=(_loading, then), name="loops", daemon=True).start()


def are_ready() -> bool:
    """Whether the loops can be used now. Loads them first, unless that is deferred.

    Raises Trouble when they could not be loaded.
    """
    if not _is_deferred:
        try:
            importlib.import_module(_LOOPS)
        except Exception as why:
            raise _not_loaded(why) from why
        return True
    if _loading is None or not _loading.done():
        return False
    error = _loading.exception()
    if error is not None:
        raise _not_loaded(error) from error
    return True


def _not_loaded(error: BaseException) -> Trouble:
    return Trouble(
        f"the merge's compiled loops could not be loaded: {type(error).__name__}: {error}; "
        "let NUMBA_CACHE_DIR name a folder with room that this user may write to, or install "
        "numba anew"
    )


def _load(loading: Future[None], then: Callable[[], None]) -> None:
    try:
        importlib.import_module(_LOOPS)
        then()
    except BaseException as error:
        loading.set_exception(error)
    else:
        loading.set_result(None)
