"""What a learner sends and fetches for each inner step, counted from the blobs of a real run.

Two learners of the built-in decoder, H = 24, P = 12. All-reduce data parallelism among M learners
sends 2 (M - 1) / M gradients a step (a ring), and receives as many. Counts do not depend on the
machine. `python -m tests.bench.bench_bytes` also says what a region's line must carry for them.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from replay.goodput.bandwidth import Traffic
from streams.events import CheckpointStored, DeltaOffered, FragmentMerged
from tests.bench.figures import Figure, at_least
from tests.bench.lines import by_model, by_utilisation, gradients_reduced, ours, streamed
from tests.trained_run import TrainedRun, small_run

CODECS = ("fp32", "bf16", "int8", "int4")
LEARNERS = 8
REGION_LEARNERS = 2
FRAGMENTS, INNER_STEPS = 12, 24
GRADIENT_BYTES = {"bf16": 2, "fp32": 4}
ROUNDS = 36  # of two steps: each fragment has three versions
WIDTH = 256


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes for each parameter and inner step of one learner."""

    deltas: float
    fragments: float
    checkpoints: float


def all_reduced(learners: int, gradients: str) -> float:
    """Bytes that data parallelism sends for each parameter and step."""
    return 2 * (learners - 1) / learners * GRADIENT_BYTES[gradients]


def counted(codec: str, learners: int = 2) -> Bytes:
    """From the manifests of what one of the learners stored and adopted, headers and all."""
    settings = small_run(
        fragments=FRAGMENTS,
        inner_steps=INNER_STEPS,
        codecs={"delta": codec},
        model={"layers": 2, "width": WIDTH, "heads": 4, "context": 16},
        training={"shards": learners + 1, "batch_sequences": 2},
        end={"steps": 10_000},
    )
    run = TrainedRun(settings)
    for number in range(learners):
        run.begin(string.ascii_lowercase[number])
    run.go(ROUNDS)
    events = [one.event for one in run.tape]
    merged = {
        (one.fragment, one.version): one.parameters.bytes
        for one in events
        if isinstance(one, FragmentMerged)
    }
    offers = [one for one in events if isinstance(one, DeltaOffered) and one.learner == "a"]
    adopted = [(each.fragment, each.version) for one in offers for each in one.adopted]
    stored = [
        one.manifest.bytes
        for one in events
        if isinstance(one, CheckpointStored) and one.learner == "a"
    ]
    steps = run.pupils["a"].core.state.learner_step
    elements = sum(tensor.elements for tensor in run.opening.layout.tensors)
    each = elements * steps
    return Bytes(
        sum(one.manifest.bytes for one in offers) / each,
        sum(merged[one] for one in adopted) / each,
        sum(stored) / each,
    )


def table(counts: Mapping[str, Bytes]) -> Iterator[str]:
    """As it stands in `docs/explanation/performance.md`; counts by codec."""
    yield (
        "| deltas in | deltas | fragments | checkpoints | less sent than all-reduce of bf16, "
        "of fp32 | with fragments, both ways | with checkpoints, too |"
    )
    yield "|" + "---|" * 7
    reduced, wide = (all_reduced(LEARNERS, kind) for kind in GRADIENT_BYTES)
    for codec, one in counts.items():
        both = one.deltas + one.fragments
        yield (
            f"| {codec} | {one.deltas:.4f} | {one.fragments:.4f} | {one.checkpoints:.4f} "
            f"| {reduced / one.deltas:.0f} x, {wide / one.deltas:.0f} x "
            f"| {2 * reduced / both:.0f} x, {2 * wide / both:.0f} x "
            f"| {2 * reduced / (both + one.checkpoints):.1f} x, "
            f"{2 * wide / (both + one.checkpoints):.1f} x |"
        )


def methods(counts: Mapping[str, Bytes], parameters: float) -> list[Traffic]:
    """What crosses a region's line: of two others, and of ours with two learners in the region."""
    bf16, int4 = counts["bf16"], counts["int4"]
    ours_of = {
        "in: fragments": REGION_LEARNERS * bf16.fragments,
        "in: fragments, by a cache": bf16.fragments,
        "out: bf16 deltas": REGION_LEARNERS * bf16.deltas,
        "out: int4 deltas": REGION_LEARNERS * int4.deltas,
        "out: bf16 deltas, checkpoints": REGION_LEARNERS * (bf16.deltas + bf16.checkpoints),
    }
    return [
        gradients_reduced(parameters),
        *(streamed(parameters, bits, FRAGMENTS, INNER_STEPS) for bits in (16, 4)),
        *(ours(f"ours, {name}", parameters * each) for name, each in ours_of.items()),
    ]


def figures(quick: bool) -> Iterator[Figure]:
    """How many times less deltas send than an all-reduce of bf16 gradients; quick: of bf16."""
    reduced = all_reduced(LEARNERS, "bf16")
    for codec, times in {"bf16": 40, "int4": 150}.items():
        if quick and codec != "bf16":
            continue
        name = f"bytes: deltas in {codec} against all-reduce of {LEARNERS}"
        yield Figure(name, reduced / counted(codec).deltas, "times less", at_least(times))


def main() -> None:
    counts = {codec: counted(codec) for codec in CODECS}
    billion = methods(counts, 1e9)
    for line in (*table(counts), "", *by_utilisation(billion, 1.0), "", *by_model(billion, 0.95)):
        print(line)


if __name__ == "__main__":
    main()
