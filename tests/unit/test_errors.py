"""Failures between processes: a pool that brings one back must not break over it."""

from __future__ import annotations

import copy

import pytest

from replay.errors import Differs, InvariantBroken, TapeCorrupt
from streams.errors import AskedWrongly, ChainBroken, Failure

FAILURES = (
    ChainBroken(7, "it forks"),
    InvariantBroken("tokens add up", "a lost some", 9),
    AskedWrongly("--listen 9464: write it as HOST:PORT"),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: type(one).__name__)
def test_a_failure_comes_back_from_another_process_as_it_was(failure: Failure) -> None:
    again = copy.copy(failure)  # the same way as a process pool's
    assert type(again) is type(failure)
    assert str(again) == str(failure) and vars(again) == vars(failure)
    assert again.exit_code == failure.exit_code


def _every(kind: type[Failure]) -> list[type[Failure]]:
    return [kind, *(one for below in kind.__subclasses__() for one in _every(below))]


@pytest.mark.parametrize("kind", _every(Failure), ids=lambda kind: kind.__name__)
def test_no_kind_of_failure_needs_its_constructor_to_come_back(kind: type[Failure]) -> None:
    failure = kind.__new__(kind, "what and where")
    again = copy.copy(failure)
    assert (type(again), str(again)) == (kind, "what and where")


def test_the_kinds_with_constructors_of_their_own_are_among_them() -> None:
    assert {Differs, TapeCorrupt, InvariantBroken, ChainBroken} <= set(_every(Failure))
