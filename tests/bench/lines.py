"""What a region's line must carry for a compute utilisation: the paper's table 13, for our bytes.

The formula is that of `replay.goodput.bandwidth`, for two regions: each method sends a payload
every `spread` steps, hidden behind `hidden` steps of computing, and what is not hidden is waited
for. Ours waits for nothing, so what a thin line costs it is its pace: u means that fragments get
their versions at u times the pace that was set, and that is bytes / step * u, the same formula with
one step for both. The busier direction counts; a line carries both at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replay.goodput.bandwidth import Traffic, gigabits_needed, traffics
from tests.bench.figures import written

REGIONS = 2
UTILISATIONS = (0.5, 0.8, 0.9, 0.95, 0.99)
MODELS = ((1e9, 1.0), (10e9, 1.0), (10e9, 5.0), (70e9, 1.0), (70e9, 5.0))
"""Parameters, and seconds a step: the paper's two."""


def gradients_reduced(parameters: float) -> Traffic:
    """Gradients in bfloat16 once a step; hidden behind the share of a step that fits the paper."""
    return Traffic("all-reduce, bf16", 16e-9 * parameters, traffics()[0].hidden, spread=1.0)


def streamed(parameters: float, bits: int, fragments: int, inner_steps: int) -> Traffic:
    """Streaming DiLoCo: one fragment each H/P steps, reduced behind one step, then waited for."""
    payload = bits * 1e-9 * parameters / fragments
    return Traffic(f"streaming DiLoCo, {bits} bits", payload, 1.0, inner_steps / fragments)


def ours(name: str, step_bytes: float) -> Traffic:
    """These bytes in a step, in the busier direction, for all learners of the region together."""
    return Traffic(name, 8e-9 * step_bytes, hidden=1.0, spread=1.0)


def needed(traffic: Traffic, step_seconds: float) -> list[float]:
    """Gbit/s at each of UTILISATIONS."""
    return [gigabits_needed(traffic, each, step_seconds, REGIONS) for each in UTILISATIONS]


def by_utilisation(what: Sequence[Traffic], step_seconds: float) -> Iterator[str]:
    """A table of one model: a line a method, a column a utilisation; Gbit/s."""
    yield "| Gbit/s | " + " | ".join(f"{each:.0%}" for each in UTILISATIONS) + " |"
    yield "|---" * (1 + len(UTILISATIONS)) + "|"
    for each in what:
        figures = (written(value) for value in needed(each, step_seconds))
        yield f"| {each.name} | " + " | ".join(figures) + " |"


def by_model(what: Sequence[Traffic], utilisation: float) -> Iterator[str]:
    """A table of one utilisation: a line a method, a column a model; `what` is of 1 B parameters.

    All of it grows with parameters over seconds a step, so one such column would do.
    """
    heads = (f"{parameters / 1e9:.0f} B, {seconds:.0f} s" for parameters, seconds in MODELS)
    yield f"| Gbit/s at {utilisation:.0%} | " + " | ".join(heads) + " |"
    yield "|---" * (1 + len(MODELS)) + "|"
    for each in what:
        one = gigabits_needed(each, utilisation, 1.0, REGIONS)
        figures = (written(one * parameters / 1e9 / seconds) for parameters, seconds in MODELS)
        yield f"| {each.name} | " + " | ".join(figures) + " |"
