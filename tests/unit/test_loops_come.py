"""The compiled loops may come in the middle of a merge: the bits are those of any other moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from decodiloco.merge import loading, one_pass
from decodiloco.merge.fragment import Merged, MergeOrder, merge_fragment
from decodiloco.merge.order import Abandoned
from tests.merge_orders import FragmentBench, digests, filled, tensor

TENSORS = (
    tensor("long", (3, 4099)),
    tensor("middle", (70,), rule="median"),
    tensor("one", ()),
    tensor("trimmed", (90,), rule="trimmed"),
)


class Coming:
    """Loops that are there from the n-th time on that a merge asks for them."""

    def __init__(self) -> None:
        self.asked = self.there_after = 0
        self.proofs: list[bool] = []

    def are_ready(self) -> bool:
        self.asked += 1
        return self.asked > self.there_after

    def prove(self) -> bytes:
        self.proofs.append(self.asked > self.there_after)
        return b""

    def merged(self, order: MergeOrder, bench: FragmentBench, after: int) -> Merged | Abandoned:
        self.asked, self.there_after = 0, after
        return merge_fragment(order, bench.store)


@pytest.fixture
def coming(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coming]:
    loops = Coming()
    monkeypatch.setattr(loading, "are_ready", loops.are_ready)
    monkeypatch.setattr(one_pass, "self_test", loops.prove)
    one_pass._proved.__dict__.clear()
    yield loops
    one_pass._proved.__dict__.clear()


def orders(bench: FragmentBench, coming: Coming, learners: int) -> list[MergeOrder]:
    """A fragment's first merge, and its second, which has a momentum."""
    deltas = {f"l{place}": filled(place + 1, tensors=TENSORS) for place in range(learners)}
    first = bench.order(deltas)
    merged = coming.merged(first, bench, after=0)
    assert isinstance(merged, Merged)
    return [first, bench.following(first, merged, deltas)]


@pytest.mark.parametrize("learners", [1, 2, 5])
def test_loops_that_come_during_a_merge_change_no_bit(coming: Coming, learners: int) -> None:
    bench = FragmentBench(f"coming-{learners}", TENSORS)
    for order in orders(bench, coming, learners):
        wanted = coming.merged(order, bench, after=0)
        times = coming.asked
        assert times >= 2 * len(TENSORS)
        for after in range(1, times + 1):
            merged = coming.merged(order, bench, after)
            assert isinstance(merged, Merged) and isinstance(wanted, Merged)
            assert digests(merged) == digests(wanted), f"they came after {after} of {times}"


def test_loops_that_come_during_a_merge_are_proved_before_they_are_used(coming: Coming) -> None:
    bench = FragmentBench("coming-proved", TENSORS)
    order = bench.order({"a": filled(1, tensors=TENSORS)})

    coming.merged(order, bench, after=4)

    assert coming.proofs == [False, True]
