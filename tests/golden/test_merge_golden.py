"""Merge v1 in numbers: digests and values that are kept in git and may never change.

A change here is a new version of the run's rules, never a new number. To see what this build
gives: `python -m tests.golden.test_merge_golden`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from decodiloco.merge.exact import square_sum
from decodiloco.merge.fragment import Merged, MergeOrder, merge_fragment
from decodiloco.merge.report import decode_report
from decodiloco.store.tensors import encode_tensors
from tests.merge_orders import FragmentBench, digests, filled, numbers, tensor

NUMBERS = Path(__file__).with_name("merge_v1.json")

TENSORS = (
    tensor("attention", (3, 7001)),
    tensor("bias", ()),
    tensor("embedding", (600, 500), rule="mean"),
    tensor("tiny", (17,), rule="mean"),
)


def three_versions(name: str) -> list[tuple[MergeOrder, Merged]]:
    """Three merges of one fragment: three learners, then one that is far off, then two."""
    bench = FragmentBench(name, TENSORS)
    bench_deltas = [
        {"a": 1e-2, "b": 2e-2, "c": 5e-1},
        {"b": 3.0},
        {"a": 1e-2, "c": 1e-39},
    ]
    merges: list[tuple[MergeOrder, Merged]] = []
    for version, sizes in enumerate(bench_deltas, start=1):
        deltas = {
            learner: filled(10 * version + ord(learner), size, TENSORS)
            for learner, size in sizes.items()
        }
        order = bench.following(*merges[-1], deltas) if merges else bench.order(deltas, quorum=1)
        merged = merge_fragment(order, bench.store)
        assert isinstance(merged, Merged)
        merges.append((order, merged))
    return merges


def found(name: str) -> dict[str, Any]:
    """What this build gives, in the form in which it is kept."""
    told: dict[str, Any] = {"square_sum": square_sum(numbers(100_003, 1)).hex(), "versions": []}
    for _, merged in three_versions(name):
        report = decode_report(bytes(merged.report.parts[0]))
        told["versions"].append(
            {
                **digests(merged),
                "manifest": merged.parameters.manifest.digest.hex(),
                "outer_gradient_norm": merged.outer_gradient_norm.hex(),
                "attention": _in_hex(asdict(report.tensors[0])),
            }
        )
    delta = encode_tensors(filled(5, 0.1, TENSORS), "bf16", squares=True)
    told["delta_header"] = bytes(delta.parts[0]).decode("ascii", "backslashreplace")
    return told


def test_merge_v1_gives_the_numbers_that_are_kept() -> None:
    assert found("golden-merge") == json.loads(NUMBERS.read_text())


def _in_hex(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return [_in_hex(item) for item in value]
    if isinstance(value, dict):
        return {name: _in_hex(item) for name, item in value.items()}
    return value


if __name__ == "__main__":
    print(json.dumps(found("golden-merge"), indent=1))
