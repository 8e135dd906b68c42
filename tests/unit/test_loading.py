"""The compiled loops come when they come: nothing waits for them that was told not to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from decodiloco.merge import loading, merge_tensor, outer_step
from decodiloco.merge.self_test import KNOWN_ANSWER, self_test
from streams.errors import Trouble


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process in which nobody has asked for the loops yet."""
    monkeypatch.setattr(loading, "_loading", None)
    monkeypatch.setattr(loading, "_is_deferred", False)
    yield


def merged_and_stepped() -> list[bytes]:
    deltas = [np.linspace(-k, k, 40_000, dtype=np.float32) for k in (1, 2, 3)]
    weights = [Fraction(1, 2), Fraction(1, 3), Fraction(5)]
    gradient = merge_tensor(deltas, weights, "radial", norm_clip=1.5)
    return [a.tobytes() for a in (gradient, *outer_step(deltas[0], deltas[1], gradient, 0.7, 0.9))]


def test_whoever_defers_nothing_has_them_when_it_asks() -> None:
    assert loading.are_ready()


def test_deferred_loops_are_not_ready_until_they_are_loaded_beside() -> None:
    loading.defer()
    may_end, has_them = threading.Event(), threading.Event()

    assert not loading.are_ready()
    loading.load_beside(may_end.wait)
    loading.load_beside(has_them.set)  # a second one begins nothing
    assert not loading.are_ready()
    may_end.set()
    assert loading._loading is not None
    loading._loading.result(timeout=60)

    assert loading.are_ready()
    assert not has_them.is_set()


def test_what_fails_beside_is_raised_where_the_loops_are_asked_for() -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    loading.defer()
    loading.load_beside(fail)
    assert loading._loading is not None
    loading._loading.exception(timeout=60)

    with pytest.raises(Trouble, match="OSError: the disk is full; let NUMBA_CACHE_DIR name"):
        loading.are_ready()


def test_what_fails_at_once_is_told_just_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("importlib.import_module", fail)

    with pytest.raises(Trouble, match="OSError: the disk is full; let NUMBA_CACHE_DIR name"):
        loading.are_ready()


def test_the_bits_are_the_same_without_them() -> None:
    with_loops = merged_and_stepped()
    loading.defer()

    assert merged_and_stepped() == with_loops
    assert self_test().hex() == KNOWN_ANSWER
