"""Orders and answers as bytes: the same back, or a clear refusal; and what can be no result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodiloco.merge.fragment import merge_fragment
from decodiloco.merge.order import Abandoned, Merged, MergeOrder, StoredMerge
from decodiloco.merger.orders import (
    Done,
    Failed,
    Result,
    Working,
    decode_answer,
    decode_order,
    encode_answer,
    encode_order,
    fault_of,
)
from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.parts import LeftOut
from tests.builders import manifest
from tests.merge_orders import FragmentBench, filled

BENCH = FragmentBench("orders")
FIRST = BENCH.order({"a": filled(1), "b": filled(2)}, norm_clip=None)
MERGED = merge_fragment(FIRST, BENCH.store)
assert isinstance(MERGED, Merged)
NEXT = BENCH.following(FIRST, MERGED, {"a": filled(3), "c": filled(4)})
STORED = StoredMerge((11, 12), (), manifest("p"), manifest("m"), manifest("r"), 1.5, (12,))


def left_out(*positions: int) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(position=position, reason="not finite") for position in positions)


@pytest.mark.parametrize("order", [FIRST, NEXT, replace(NEXT, settled=True, quorum=7)])
def test_an_order_is_the_same_back(order: MergeOrder) -> None:
    payload = encode_order(order)

    assert decode_order(payload) == order
    assert encode_order(decode_order(payload)) == payload


@pytest.mark.parametrize(
    "answer",
    [
        Working(),
        Failed("no room"),
        Done.of(STORED),
        Done.of(Abandoned(left_out(11, 12))),
        Done.of(Abandoned(())),
    ],
)
def test_an_answer_is_the_same_back(answer: Working | Failed | Done) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def test_other_rules_are_for_another_build() -> None:
    schema, rules, plain = unpack(encode_order(FIRST), 10**6, 8)

    with pytest.raises(Unreadable, match="rules 2; this merger follows 1 and 1"):
        decode_order(pack([schema, rules + 1, plain]))


@given(st.binary(max_size=200) | st.builds(pack, st.lists(st.none() | st.integers(0, 3))))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for decode in (decode_order, decode_answer):
        with pytest.raises(Unreadable):
            decode(payload)


def test_an_answer_that_is_done_with_nothing_is_none() -> None:
    with pytest.raises(Unreadable, match="has no result"):
        _ = Done(None, None).result


@pytest.mark.parametrize(
    "result",
    [
        STORED,
        replace(STORED, contributions=(11,), left_out=left_out(12), doubted=()),
        Abandoned(left_out(11, 12)),
    ],
)
def test_what_may_be_a_result_passes(result: Result) -> None:
    assert fault_of(FIRST, result) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: replace(STORED, contributions=(11, 13)), "not those of the order"),
        (lambda: replace(STORED, contributions=(11, 11)), "not those of the order"),
        (lambda: replace(STORED, contributions=(11,)), "not those of the order"),
        (lambda: replace(STORED, left_out=left_out(12)), "not those of the order"),
        (lambda: replace(STORED, contributions=(), left_out=left_out(11, 12)), "are a quorum"),
        (lambda: replace(STORED, doubted=(13,)), "doubts what is not in it"),
        (lambda: replace(STORED, outer_gradient_norm=float("inf")), "not finite"),
        (lambda: Abandoned(left_out(13)), "leaves out what was not in the order"),
        (lambda: Abandoned(left_out(11, 11)), "leaves out what was not in the order"),
        (lambda: Abandoned(left_out(11)), "a quorum is left"),
    ],
)
def test_what_can_be_no_result_is_told(change: Callable[[], Result], told: str) -> None:
    fault = fault_of(FIRST, change())
    assert fault is not None and told in fault
