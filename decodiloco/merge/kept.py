"""How the loops are compiled, and kept.

Nothing here is allowed what would change a bit: no fast-math, no reduction whose order is the
compiler's. What is kept is known by the time and size of the file in which its loop lies: so all
that a loop calls lies in that file, too.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

STRICT = {"nogil": True, "error_model": "numpy", "fastmath": False}


def kept(signatures):
    """Compiles for these signatures now, and keeps the result where this file or this user can.

    Where neither can (a read-only system without a home), each start compiles again: seconds.
    NUMBA_CACHE_DIR names another place.
    """

    def compile_now(function):
        try:
            return njit(signatures, cache=True, **STRICT)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            return njit(signatures, **STRICT)(function)

    return compile_now


def read(of: Any) -> Any:
    return types.Array(of, 1, "C", readonly=True)


def written(of: Any, dimensions: int = 1) -> Any:
    return types.Array(of, dimensions, "C")


FLOATS = read(types.float32)
