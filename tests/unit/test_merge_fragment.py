"""A whole fragment merged from stored deltas: the pass, the gates, who is left out and why."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreUnreachable
from decodiloco.merge import merge_tensor, outer_step
from decodiloco.merge.fragment import Abandoned, Merged, merge_fragment
from decodiloco.merge.report import decode_report
from decodiloco.store.codecs import decode, encode
from decodiloco.store.header import Header, parse_header, render_header
from decodiloco.store.keys import global_key
from decodiloco.store.tensors import Encoded, encode_tensors, read_tensors
from streams.manifest import Manifest
from streams.parts import LeftOut
from tests.merge_orders import (
    TENSORS,
    Arrays,
    FragmentBench,
    Stumbling,
    digests,
    filled,
    numbers,
    tensor,
)

DELTAS = {learner: filled(place, 0.01) for place, learner in enumerate("abc", 1)}


def merged_by(bench: FragmentBench, order: Any, store: Any = None, **options: Any) -> Merged:
    result = merge_fragment(order, store or bench.store, **options)
    assert isinstance(result, Merged), result
    return result


def arrays_of(blob: Encoded) -> Arrays:
    bench = FragmentBench("merge-reading")
    bench.store.put(f"x/{blob.manifest.digest.hex()}", blob.parts)
    return read_tensors(bench.store, f"x/{blob.manifest.digest.hex()}", blob.manifest)


def wired(delta: Arrays) -> Arrays:
    """A delta as it is after its bf16 journey."""
    return {
        name: decode(encode(array, "bf16"), "bf16").reshape(array.shape)
        for name, array in delta.items()
    }


def test_a_merge_is_the_public_functions_tensor_by_tensor() -> None:
    bench = FragmentBench("merge-public")
    order = bench.order(DELTAS)
    made = merged_by(bench, order)
    weights = [Fraction((1000 + position) ** 2, 24) for position in (11, 12, 13)]
    before, after, momentum = filled(99), arrays_of(made.parameters), arrays_of(made.momentum)
    for one in TENSORS:
        deltas = [wired(DELTAS[learner])[one.name] for learner in "abc"]
        gradient = merge_tensor(deltas, weights, one.rule, norm_clip=2.0)
        zeros = np.zeros(one.shape, np.float32)
        wanted = outer_step(before[one.name], zeros, gradient, 0.7, 0.9)
        assert after[one.name].tobytes() == wanted[0].tobytes()
        assert momentum[one.name].tobytes() == wanted[1].tobytes()
    assert (made.contributions, made.left_out) == ((11, 12, 13), ())


def test_the_next_version_goes_on_from_parameters_momentum_and_history() -> None:
    bench = FragmentBench("merge-next")
    order = bench.order(DELTAS)
    made = merged_by(bench, order)
    later = bench.following(order, made, {"b": DELTAS["b"]})
    again = merged_by(bench, later)
    parameters, momentum = arrays_of(made.parameters), arrays_of(made.momentum)
    gradient = wired(DELTAS["b"])["embedding"]
    wanted = outer_step(parameters["embedding"], momentum["embedding"], gradient, 0.7, 0.9)
    assert arrays_of(again.parameters)["embedding"].tobytes() == wanted[0].tobytes()
    assert arrays_of(again.momentum)["embedding"].tobytes() == wanted[1].tobytes()
    report = decode_report(bytes(again.report.parts[0]))
    first = decode_report(bytes(made.report.parts[0]))
    assert report.history("bias")[:1] == first.history("bias")
    assert len(report.history("bias")) == 2


def test_an_outlier_alone_is_clipped_by_the_history() -> None:
    bench = FragmentBench("merge-outlier")
    order = bench.order(DELTAS)
    made = merged_by(bench, order)
    for _ in range(7):
        order = bench.following(order, made, DELTAS)
        made = merged_by(bench, order)
    huge = {name: array * np.float32(50) for name, array in DELTAS["b"].items()}
    again = merged_by(bench, bench.following(order, made, {"b": huge}))
    report = decode_report(bytes(again.report.parts[0]))
    for one, earlier in zip(
        report.tensors, decode_report(bytes(made.report.parts[0])).tensors, strict=True
    ):
        assert len(earlier.medians) == 8
        assert one.limit == 2.0 * median(earlier.medians)
        assert one.norms[0] * one.clips[0] == pytest.approx(one.limit)
        assert one.outer_gradient_norm == pytest.approx(one.limit)


def test_the_report_names_who_weighed_what() -> None:
    bench = FragmentBench("merge-report")
    made = merged_by(bench, bench.order(DELTAS))
    report = decode_report(bytes(made.report.parts[0]))
    assert [(one.position, one.learner) for one in report.contributors] == [
        (11, "a"),
        (12, "b"),
        (13, "c"),
    ]
    assert sum(one.weight for one in report.contributors) == pytest.approx(1)
    assert [one.name for one in report.tensors] == ["attention", "bias", "embedding"]
    squares = sum(one.outer_gradient_norm**2 for one in report.tensors)
    assert made.outer_gradient_norm**2 == pytest.approx(squares)


def test_blobs_are_keyed_by_what_they_are() -> None:
    bench = FragmentBench("merge-keys")
    order = bench.order(DELTAS)
    made = merged_by(bench, order)
    keys = [key.rsplit("-", 1)[0] for key, _ in made.blobs(order)]
    assert keys == ["trial/global/f0/1", "trial/outer/f0/1", "trial/report/0"]


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    tensors = tuple(tensor(f"t{place}", (90 + place, 701)) for place in range(7))
    bench = FragmentBench("merge-threads", tensors)
    order = bench.order({one: filled(ord(one), 0.1, tensors) for one in "abcd"})
    assert digests(merged_by(bench, order, threads=threads)) == digests(merged_by(bench, order))


def poisoned(value: float) -> Encoded:
    delta = {name: array.copy() for name, array in DELTAS["b"].items()}
    delta["embedding"][3, 3] = value
    return encode_tensors(delta, "bf16", squares=True)


def lying(tensor_name: str, squares: float) -> Encoded:
    """A delta whose header says another sum of squares than its elements have."""
    honest = encode_tensors(DELTAS["b"], "bf16", squares=True)
    header = parse_header(bytes(honest.parts[0]), "delta")
    assert header.squares is not None
    names = [entry.name for entry in header.entries]
    said = list(header.squares)
    said[names.index(tensor_name)] = squares
    return renamed(honest, Header(header.entries, header.chunks, tuple(said)))


def hiding_nan() -> Encoded:
    """A delta with a NaN whose header looks sound."""
    blob = poisoned(np.nan)
    header = parse_header(bytes(blob.parts[0]), "delta")
    assert header.squares is not None
    return renamed(blob, Header(header.entries, header.chunks, (*header.squares[:2], 1.0)))


def renamed(blob: Encoded, header: Header) -> Encoded:
    start = render_header(header)
    manifest = Manifest(
        bytes=len(start) + header.payload_bytes,
        digest=blake3(start).digest(),
        codec=blob.manifest.codec,
    )
    return Encoded((start, *blob.parts[1:]), manifest)


def broken_chunk() -> Encoded:
    honest = encode_tensors(DELTAS["b"], "bf16", squares=True)
    payload = bytearray(bytes(honest.parts[1]))
    payload[77] ^= 1
    return Encoded((honest.parts[0], bytes(payload), *honest.parts[2:]), honest.manifest)


def reshaped() -> Encoded:
    delta = {**DELTAS["b"], "attention": DELTAS["b"]["attention"].T}
    return encode_tensors(delta, "bf16", squares=True)


def without(name: str) -> Encoded:
    delta = {one: array for one, array in DELTAS["b"].items() if one != name}
    return encode_tensors(delta, "bf16", squares=True)


def strange() -> Encoded:
    delta = {**DELTAS["b"], "zeta": np.ones(1, np.float32)}
    return encode_tensors(delta, "bf16", squares=True)


UNFIT: dict[str, tuple[Encoded, str]] = {
    "NaN": (poisoned(np.nan), "not finite: embedding"),
    "infinity": (poisoned(np.inf), "not finite: embedding"),
    "absurd": (poisoned(1e30), "norm out of bounds: embedding"),
    "NaN that the header hides": (hiding_nan(), "not finite: embedding"),
    "a lie in the first tensor": (lying("attention", 1.5), "lying header: attention"),
    "a lie in the last tensor": (lying("embedding", 0.0), "lying header: embedding"),
    "a negative sum": (lying("embedding", -1.0), "norm out of bounds: embedding"),
    "a broken chunk": (broken_chunk(), "corrupt: blob trial/delta/b/"),
    "another shape": (reshaped(), "wrong shape: attention (257, 130), not (130, 257)"),
    "a tensor short": (without("bias"), "wrong tensors: bias is not there"),
    "a tensor more": (strange(), "wrong tensors: zeta is not of this fragment"),
    "no sums": (encode_tensors(DELTAS["b"], "bf16"), "no sums of squares"),
    "another codec": (
        encode_tensors(DELTAS["b"], "fp32", squares=True),
        "wrong codec: fp32, not bf16",
    ),
}


@pytest.mark.parametrize("rule", ["mean", "trimmed", "median"])
@pytest.mark.parametrize("fault", UNFIT)
def test_by_any_rule_an_unfit_delta_is_left_out(fault: str, rule: str) -> None:
    bench = FragmentBench(f"merge-unfit-{list(UNFIT).index(fault)}-{rule}")
    blob, reason = UNFIT[fault]
    order = bench.order({**DELTAS, "b": blob})
    tensors = tuple(one.model_copy(update={"rule": rule}) for one in order.tensors)
    made = merged_by(bench, replace(order, tensors=tensors))
    assert [one.position for one in made.left_out] == [12]
    assert made.left_out[0].reason.startswith(reason)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fault", UNFIT)
def test_an_unfit_delta_is_left_out_as_if_it_had_not_been(fault: str, threads: int) -> None:
    bench = FragmentBench(f"merge-unfit-{list(UNFIT).index(fault)}-{threads}")
    blob, reason = UNFIT[fault]
    order = bench.order({**DELTAS, "b": blob}, quorum=2)
    made = merged_by(bench, order, threads=threads)
    assert made.contributions == (11, 13)
    assert [one.position for one in made.left_out] == [12]
    assert made.left_out[0].reason.startswith(reason)
    fit = tuple(one for one in order.contributions if one.learner != "b")
    assert digests(made) == digests(merged_by(bench, replace(order, contributions=fit)))


def test_below_the_quorum_the_merge_is_abandoned() -> None:
    bench = FragmentBench("merge-abandoned")
    order = bench.order({**DELTAS, "b": poisoned(np.nan)}, quorum=3)
    assert merge_fragment(order, bench.store) == Abandoned(
        (LeftOut(position=12, reason="not finite: embedding"),)
    )


def test_several_liars_are_found_one_after_another() -> None:
    bench = FragmentBench("merge-liars")
    order = bench.order(
        {"a": lying("embedding", 2.0), "b": lying("attention", 2.0), "c": DELTAS["c"]}
    )
    made = merged_by(bench, order)
    assert made.contributions == (13,)
    assert [one.reason[:23] for one in made.left_out] == [
        "lying header: embedding",
        "lying header: attention",
    ]


def test_an_absent_delta_is_waited_for_and_then_left_out() -> None:
    bench = FragmentBench("merge-absent")
    order = bench.order(DELTAS, fetch_seconds_max=3.0)
    gone = order.contributions[1].key
    store = Stumbling(bench.store, lambda key, attempt: BlobMissing(key) if key == gone else None)
    waited: list[float] = []
    made = merged_by(bench, order, store, sleep=waited.append)
    assert made.left_out == (LeftOut(position=12, reason="missing"),)
    assert sum(waited) == pytest.approx(3.0)


def test_a_delta_that_comes_late_is_merged() -> None:
    bench = FragmentBench("merge-late")
    order = bench.order(DELTAS, fetch_seconds_max=30.0)
    late = order.contributions[1].key
    store = Stumbling(
        bench.store,
        lambda key, attempt: StoreUnreachable(key) if key == late and attempt < 4 else None,
    )
    waited: list[float] = []
    made = merged_by(bench, order, store, sleep=waited.append)
    assert made.left_out == ()
    assert waited == [0.05, 0.1, 0.2]


def test_all_absent_deltas_share_one_wait() -> None:
    bench = FragmentBench("merge-all-absent")
    order = bench.order(DELTAS, fetch_seconds_max=2.0)
    keys = {one.key for one in order.contributions}
    store = Stumbling(bench.store, lambda key, attempt: BlobMissing(key) if key in keys else None)
    waited: list[float] = []
    result = merge_fragment(order, store, sleep=waited.append)
    assert result == Abandoned(
        tuple(LeftOut(position=position, reason="missing") for position in (11, 12, 13))
    )
    assert sum(waited) == pytest.approx(2.0)


def test_a_store_that_dies_on_the_way_leaves_its_delta_out() -> None:
    bench = FragmentBench("merge-dies")
    order = bench.order(DELTAS)
    dying = order.contributions[2].key
    store = Stumbling(
        bench.store,
        lambda key, attempt: (
            StoreUnreachable("no answer") if key == dying and attempt > 1 else None
        ),
    )
    made = merged_by(bench, order, store)
    assert made.left_out == (LeftOut(position=13, reason="unreachable: no answer"),)


def test_trouble_with_the_fragment_itself_is_no_learners_fault() -> None:
    bench = FragmentBench("merge-trouble")
    order = bench.order(DELTAS)
    key = global_key("trial", 0, 0, order.parameters)
    store = Stumbling(bench.store, lambda one, attempt: BlobMissing(one) if one == key else None)
    with pytest.raises(BlobMissing):
        merge_fragment(order, store)
    with pytest.raises(BlobCorrupt, match="does not hold the tensors"):
        merge_fragment(replace(order, tensors=order.tensors[:2]), bench.store)


def test_an_order_out_of_order_is_a_bug() -> None:
    bench = FragmentBench("merge-order")
    order = bench.order(DELTAS)
    with pytest.raises(AssertionError, match="learner-id order"):
        merge_fragment(replace(order, contributions=order.contributions[::-1]), bench.store)


def test_a_radial_merge_of_one_is_that_one() -> None:
    bench = FragmentBench("merge-one")
    order = bench.order({"a": DELTAS["a"]}, lr=1.0, mu=0.0)
    momentum = arrays_of(merged_by(bench, order).momentum)
    for name, array in wired(DELTAS["a"]).items():
        assert momentum[name].tobytes() == array.tobytes()


def test_small_numbers_are_not_lost() -> None:
    tensors = (tensor("w", (5,), rule="mean"),)
    bench = FragmentBench("merge-small", tensors)
    tiny = {"w": (numbers(5, 1) * np.float32(1e-39)).astype(np.float32)}
    order = bench.order({"a": tiny})
    assert arrays_of(merged_by(bench, order).momentum)["w"].any()
