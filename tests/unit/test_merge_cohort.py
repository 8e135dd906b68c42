"""Stored deltas held against each other: who is left out, doubted, or merged, and what is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decodiloco.config import Gates
from decodiloco.merge.fragment import Abandoned, Merged, MergeOrder, merge_fragment
from decodiloco.merge.report import Report, decode_report
from decodiloco.store.tensors import encode_tensors
from replay.invariants.cohort import stranger
from streams.parts import LeftOut
from tests.lies import with_squares
from tests.merge_orders import TENSORS, Arrays, FragmentBench, digests


def drawn(seed: int) -> Arrays:
    """Numbers that have nothing to do with those of another seed."""
    draw = np.random.default_rng(seed)
    return {one.name: draw.standard_normal(one.shape, np.float32) for one in TENSORS}


def around(seed: int) -> Arrays:
    """A delta near one goal of all."""
    goal, other = drawn(1), drawn(100 + seed)
    return {name: np.asarray(goal[name] + np.float32(0.5) * other[name]) for name in goal}


def times(factor: float, delta: Arrays) -> Arrays:
    return {name: np.asarray(np.float32(factor) * array) for name, array in delta.items()}


HONEST = {name: around(seed) for seed, name in enumerate("abcd")}
NO_GATES = {"direction": None, "norm_extreme": None}


def result(bench: FragmentBench, order: MergeOrder, **options: Any) -> Merged | Abandoned:
    return merge_fragment(order, bench.store, **options)


def merged(bench: FragmentBench, order: MergeOrder, **options: Any) -> Merged:
    made = result(bench, order, **options)
    assert isinstance(made, Merged), made
    return made


def report_of(made: Merged) -> Report:
    return decode_report(bytes(made.report.parts[0]))


def reasons(made: Merged | Abandoned) -> dict[int, str]:
    return {each.position: each.reason.split(":")[0] for each in made.left_out}


def test_honest_deltas_are_all_merged_and_the_report_tells_how_they_agree() -> None:
    bench = FragmentBench("cohort-honest")
    made = merged(bench, bench.order(HONEST))
    assert (made.contributions, made.left_out, made.doubted) == ((11, 12, 13, 14), (), ())
    for one in report_of(made).contributors:
        assert one.own is not None and one.rest is not None
        assert 0.7 < one.own < 0.9 and 0.7 < one.rest < 0.9
        assert one.step_norm > 0


def test_a_reversed_delta_is_left_out_and_named_with_its_numbers() -> None:
    bench = FragmentBench("cohort-flipped")
    made = merged(bench, bench.order({**HONEST, "c": times(-1, HONEST["c"])}))
    assert made.contributions == (11, 12, 14)
    (out,) = made.left_out
    assert out.position == 13
    assert out.reason == "direction: cosine -0.797 with the others, 0.799 among them"


def test_what_is_left_out_leaves_no_trace_in_the_bytes() -> None:
    flipped, without = FragmentBench("cohort-trace"), FragmentBench("cohort-without")
    made = merged(flipped, flipped.order({**HONEST, "d": times(-1, HONEST["d"])}))
    honest = {name: HONEST[name] for name in "abc"}
    assert digests(made) == digests(merged(without, without.order(honest)))


def test_threads_come_to_the_same_verdict() -> None:
    bench = FragmentBench("cohort-threads")
    order = bench.order({**HONEST, "a": times(-1, HONEST["a"])})
    one, more = merged(bench, order), merged(bench, order, threads=3)
    assert digests(one) == digests(more)
    assert one.left_out == more.left_out


def test_a_delta_a_thousand_times_too_long_is_left_out_for_its_norm() -> None:
    bench = FragmentBench("cohort-long")
    made = merged(bench, bench.order({**HONEST, "b": times(1000, HONEST["b"])}))
    assert reasons(made) == {12: "extreme norm"}


def test_one_that_is_fifty_times_too_long_is_clipped_only() -> None:
    bench = FragmentBench("cohort-clipped")
    made = merged(bench, bench.order({**HONEST, "b": times(50, HONEST["b"])}))
    assert made.left_out == ()
    assert report_of(made).tensors[0].clips[1] < 0.1


def test_more_steps_may_make_a_longer_delta() -> None:
    bench = FragmentBench("cohort-steps")
    order = bench.order({**HONEST, "b": times(500, HONEST["b"])})
    long = replace(order.contributions[1], inner_steps=24 * 100)
    contributions = (order.contributions[0], long, *order.contributions[2:])
    assert merged(bench, replace(order, contributions=contributions)).left_out == ()


def test_alone_a_full_history_tells_an_extreme_norm() -> None:
    bench = FragmentBench("cohort-history")
    order = bench.order(HONEST)
    for count in range(8):
        made = merged(bench, order)
        assert len(report_of(made).step_norms) == count + 1
        order = bench.following(order, made, HONEST)
    alone = bench.following(order, merged(bench, order), {"b": times(1000, HONEST["b"])})
    made_of_it = result(bench, alone)
    assert isinstance(made_of_it, Abandoned)
    assert [each.reason.split(":")[0] for each in made_of_it.left_out] == ["extreme norm"]


def test_of_two_the_momentum_tells_who_is_right() -> None:
    bench = FragmentBench("cohort-two")
    order = bench.order(HONEST)
    two = {"a": HONEST["a"], "b": times(-1, HONEST["b"])}
    assert merged(bench, bench.order(two)).left_out == (), "nobody knows at version 1"
    made = merged(bench, bench.following(order, merged(bench, order), two))
    assert [each.reason.split(":")[0] for each in made.left_out] == ["direction"]
    assert len(made.contributions) == 1


def test_a_random_delta_is_doubted_and_left_out_of_who_is_distrusted() -> None:
    bench = FragmentBench("cohort-random")
    order = bench.order({**HONEST, "d": drawn(7777)})
    made = merged(bench, order)
    assert (made.left_out, made.doubted) == ((), (14,))
    distrusted = replace(order.contributions[3], distrusted=True)
    again = replace(order, contributions=(*order.contributions[:3], distrusted))
    assert reasons(merged(bench, again)) == {14: "direction"}


def test_who_is_distrusted_and_agrees_is_merged() -> None:
    bench = FragmentBench("cohort-mended")
    order = bench.order(HONEST)
    distrusted = replace(order.contributions[3], distrusted=True)
    made = merged(bench, replace(order, contributions=(*order.contributions[:3], distrusted)))
    assert (made.left_out, made.doubted) == ((), ())


def test_below_the_quorum_the_merge_is_abandoned() -> None:
    bench = FragmentBench("cohort-quorum")
    order = bench.order({**HONEST, "c": times(-1, HONEST["c"])}, quorum=4)
    assert reasons(result(bench, order)) == {13: "direction"}
    assert isinstance(result(bench, order), Abandoned)


def test_a_liar_found_on_the_way_does_not_count_among_those_who_judge() -> None:
    bench = FragmentBench("cohort-liar")
    flipped = times(-1, HONEST["d"])
    lie = with_squares(encode_tensors(HONEST["c"], "bf16", squares=True), 1.5)
    made = merged(bench, bench.order({**HONEST, "c": lie, "d": flipped}))
    assert reasons(made) == {13: "lying header", 14: "direction"}
    assert made.contributions == (11, 12)


@pytest.mark.parametrize("way", [-1, 1000])
def test_without_gates_everything_finite_is_merged(way: float) -> None:
    bench = FragmentBench("cohort-off")
    made = merged(bench, bench.order({**HONEST, "c": times(way, HONEST["c"])}, **NO_GATES))
    assert (made.left_out, len(made.contributions)) == ((), 4)
    assert [one.own for one in report_of(made).contributors] == [None] * 4


def test_a_merge_that_was_settled_before_leaves_nobody_out() -> None:
    bench = FragmentBench("cohort-settled")
    order = bench.order({**HONEST, "c": times(-1000, HONEST["c"])})
    assert merged(bench, replace(order, settled=True)).left_out == ()


def test_the_plain_account_agrees_about_strangers() -> None:
    honest, steps, gates = list(HONEST.values()), [24] * 4, Gates()
    assert stranger(honest, steps, gates, ()) == ""
    assert stranger(honest[:2], steps[:2], gates, ()) == ""
    assert "cosine" in stranger([*honest[:3], times(-1, honest[3])], steps, gates, ())
    assert "norm" in stranger([*honest[:3], times(1000, honest[3])], steps, gates, ())
    one_out = (LeftOut(position=9, reason="direction: cosine -0.5 with the others"),)
    assert stranger([*honest[:2], times(-1, honest[3])], steps[:3], gates, one_out) == ""
    off = Gates(direction="none", norm_extreme="none")
    assert stranger([*honest[:3], times(-1000, honest[3])], steps, off, ()) == ""
    zeros = {name: np.zeros_like(array) for name, array in honest[0].items()}
    assert stranger([honest[0], honest[1], zeros], steps[:3], gates, ()) == ""
    few = [{"t": np.ones(2, np.float32)}] * 3
    assert stranger([*few, {"t": -np.ones(2, np.float32)}], steps, gates, ()) == ""
    assert sum(tensor.elements for tensor in TENSORS) > 30_000
