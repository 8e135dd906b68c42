"""The tables of docs/explanation/growth.md, from what was measured, and what they lead to at size.

Assumptions of the extrapolation stand here as constants and are told on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replay.study.chart import Chart, Point, Series, svg_of
from tests.bench.growth_laws import Law, exponent_of, law_of

PARAMETERS, LEARNERS, REGIONS = 70e9, 64, 4
FRAGMENTS = INNER_STEPS = 24  # the paper's: a fragment each step
STEP_SECONDS = 5.0  # the slower of the paper's two
LINK_GBIT = 5.0  # between regions: the most of what the paper's experiment over four had
CARD_GBIT = 100.0  # of one host
CORES = 32
BF16, FP32, INT4 = 2.0, 4.0, 0.533  # bytes a parameter; int4 with its scales, a block of 64

LAWS: Mapping[str, tuple[str, str, tuple[str, ...], float, str]] = {
    "merge in memory, bf16": ("added", "seconds", ("n", "K n"), 1e9, "ns"),
    "merge from files, fp32": ("stored", "seconds", ("n", "K n"), 1e9, "ns"),
    "decode a fact": ("record", "decode_seconds", ("1", "M", "P"), 1e6, "µs"),
    "fold a fact": ("record", "fold_seconds", ("1", "M", "P", "M P"), 1e6, "µs"),
    "admit an offer": ("record", "admit_seconds", ("1", "M", "P", "M P"), 1e6, "µs"),
    "state digest, once a merge": ("record", "digest_seconds", ("1", "M", "P", "M P"), 1e6, "µs"),
    "snapshot": ("record", "snapshot_bytes", ("1", "M", "P", "M P"), 1.0, "bytes"),
    "tape, a merge": ("record", "tape_bytes", ("1", "M", "M/P"), 1.0, "bytes"),
    "of it read by one learner": ("record", "heard_bytes", ("1", "M", "M/P"), 1.0, "bytes"),
}
"""What is fitted: of which points, which figure, by which terms; its factor and unit as told."""

AT = {
    "learners": float(LEARNERS),
    "fragments": float(FRAGMENTS),
    "parameters": PARAMETERS / FRAGMENTS,
}


def tables_of(taken: Mapping[str, Any]) -> dict[str, str]:
    """The page's tables by name."""
    laws = {
        name: law_of(taken[room], what, terms) for name, (room, what, terms, _, _) in LAWS.items()
    }
    return {
        "machine": machine_told(taken["machine"]),
        "merge": "\n".join(_merges(taken)),
        "moved": "\n".join(_moved(taken)),
        "record": "\n".join(_records(taken)),
        "events": "\n".join(_events(taken)),
        "laws": "\n".join(_laws(laws)),
        "size": "\n".join(_at_size(laws)),
        "changes": "\n".join(_changes()),
    }


def pictures_of(taken: Mapping[str, Any]) -> dict[str, str]:
    """One picture: the one thing in the record that grows with M times P."""
    points = taken["record"]
    ticks = tuple((float(m), f"{m:g}") for m in sorted({p["learners"] for p in points}))
    lines = tuple(
        Series(
            f"P = {fragments:g}",
            tuple(
                Point(p["learners"], 1e3 * p["digest_seconds"])
                for p in points
                if p["fragments"] == fragments
            ),
        )
        for fragments in sorted({p["fragments"] for p in points})
    )
    title, unit = "A state digested, once a merge", "ms of the processor"
    return {"digest": svg_of(Chart(title, "learners", unit, ticks, lines))}


def machine_told(machine: Mapping[str, Any]) -> str:
    releases = ", ".join(f"{name} {version}" for name, version in machine["releases"].items())
    return (
        f"Taken on {machine['cores']} cores of {machine['processor']} (load "
        f"{machine['load_before']:.0f} at the start), python {machine['python']}, {releases}."
    )


def table(*heads: str) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _merges(taken: Mapping[str, Any]) -> Iterator[str]:
    yield from table("", "parameters", "K", "ms", "ns a parameter and delta")
    for room, told in (("added", "in memory, bf16"), ("stored", "from files, fp32")):
        for p in taken[room]:
            each = 1e9 * p["seconds"] / p["parameters"] / p["learners"]
            yield row(
                told,
                f"{p['parameters'] / 1e6:.0f} M",
                p["learners"],
                f"{1e3 * p['seconds']:.0f}",
                f"{each:.2f}",
            )


def _moved(taken: Mapping[str, Any]) -> Iterator[str]:
    yield from table("M", "sent: deltas, bf16", "fetched: fragments, fp32", "stored: checkpoints")
    for p in taken["moved"]:
        each = (f"{p[f'{name}_bytes']:.4f}" for name in ("sent", "fetched", "checkpoint"))
        yield row(p["learners"], *each)


def _records(taken: Mapping[str, Any]) -> Iterator[str]:
    times, sizes = ("decode", "fold", "admit", "digest"), ("snapshot", "tape", "heard")
    heads = "snapshot, kB", "tape a merge, kB", "read by a learner, kB"
    yield from table("M", "P", *(f"{name}, µs" for name in times), *heads)
    for p in taken["record"]:
        yield row(
            p["learners"],
            p["fragments"],
            *(f"{1e6 * p[f'{name}_seconds']:.0f}" for name in times),
            *(f"{p[f'{name}_bytes'] / 1e3:.1f}" for name in sizes),
        )


def _events(taken: Mapping[str, Any]) -> Iterator[str]:
    points = taken["events"]
    yield from table("facts", "decode and fold, s", "µs a fact", "snapshot, kB")
    for p in points:
        each = p["decode_seconds"] + p["fold_seconds"]
        yield row(
            f"{p['events']:,}",
            f"{each * p['events']:.2f}",
            f"{1e6 * each:.0f}",
            f"{p['snapshot_bytes'] / 1e3:.1f}",
        )
    power = exponent_of(
        points, "events", lambda p: (p["decode_seconds"] + p["fold_seconds"]) * p["events"]
    )
    size = exponent_of(points, "events", lambda p: p["snapshot_bytes"])
    yield ""
    yield f"Time grows with the facts to the power of {power:.2f}, a snapshot with {size:.2f}."


def _laws(laws: Mapping[str, Law]) -> Iterator[str]:
    yield from table("", "law", "misses a point by at most")
    for name, law in laws.items():
        *_, factor, unit = LAWS[name]
        terms = " + ".join(
            f"{_digits(factor * each)}{'' if term == '1' else ' ' + term}"
            for term, each in law.factors.items()
        )
        yield row(name, f"{terms} {unit}", f"{100 * law.residual:.0f} %")


def _at_size(laws: Mapping[str, Law]) -> Iterator[str]:
    elements = AT["parameters"]
    cores = laws["merge from files, fp32"](AT) / STEP_SECONDS
    read = (LEARNERS * BF16 + 2 * FP32) * elements
    facts = (LEARNERS + 3) / STEP_SECONDS
    syncer = (
        LEARNERS * laws["admit an offer"](AT) + laws["state digest, once a merge"](AT)
    ) / STEP_SECONDS
    yield from table("a step of 5 s", "", "of what one has")
    yield row(
        "merge, processor",
        f"{cores * STEP_SECONDS:,.0f} s",
        f"{cores:.0f} cores; a host has {CORES}",
    )
    yield row(
        "merge, reads", _bytes(read), f"{_gbit(read):,.0f} Gbit/s; a host has {CARD_GBIT:.0f}"
    )
    yield row(
        "merge, writes", _bytes(2 * FP32 * elements), f"{_gbit(2 * FP32 * elements):,.0f} Gbit/s"
    )
    yield row("merge, holds", _bytes(2 * FP32 * elements), "of disk, until it is stored")
    yield row("a learner sends", _bytes(BF16 * elements), f"{_gbit(BF16 * elements):.1f} Gbit/s")
    yield row("a learner fetches", _bytes(FP32 * elements), f"{_gbit(FP32 * elements):.1f} Gbit/s")
    yield row(
        "facts",
        f"{LEARNERS + 3}",
        f"{facts:.0f} a second: {100 * syncer:.1f} % of a core to admit and digest",
    )
    yield row(
        "tape",
        _bytes(laws["tape, a merge"](AT)),
        f"{laws['tape, a merge'](AT) / STEP_SECONDS / 1e3:.1f} kB/s",
    )
    yield row("of it read by one learner", _bytes(laws["of it read by one learner"](AT)), "")
    yield row("a snapshot", _bytes(laws["snapshot"](AT)), "once in P merges")


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes for each parameter of a fragment: over a region's link, and into whoever merges."""

    name: str
    up: float
    down: float
    merger: float
    root: float = 0.0


def _plans() -> tuple[Plan, ...]:
    own = LEARNERS / REGIONS
    all_read, own_read = LEARNERS * BF16 + 2 * FP32, own * BF16
    root = REGIONS * FP32 + 2 * FP32
    return (
        Plan("as it is: one store, one merger", own * BF16, own * FP32, all_read),
        Plan("+ a cache in each region: a fragment crosses once", own * BF16, FP32, all_read),
        Plan("+ merged fragments come down in bf16", own * BF16, BF16, all_read),
        Plan("+ a tree: each region adds its own, one sum crosses", FP32, BF16, own_read, root),
        Plan("+ deltas in int4", FP32, BF16, own * INT4, root),
        Plan("+ sums cross in bf16", BF16, BF16, own * INT4, REGIONS * BF16 + 2 * FP32),
    )


def _changes() -> Iterator[str]:
    elements = AT["parameters"]
    yield from table(
        "",
        "a region's link, up",
        "down",
        "H that 5 Gbit/s allow",
        "into a region's merger",
        "into the last",
    )
    for plan in _plans():
        widest = max(_gbit(plan.up * elements), _gbit(plan.down * elements))
        yield row(
            plan.name,
            *(f"{_gbit(each * elements):,.0f}" for each in (plan.up, plan.down)),
            f"{INNER_STEPS * max(1.0, widest / LINK_GBIT):,.0f}",
            *(
                f"{_gbit(each * elements):,.0f}" if each else ""
                for each in (plan.merger, plan.root)
            ),
        )


def _gbit(size_bytes: float) -> float:
    """Gbit/s, when so much moves each step."""
    return 8 * size_bytes / STEP_SECONDS / 1e9


def _bytes(size_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:,.1f} {unit}"
    return f"{size_bytes:.0f} bytes"


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
