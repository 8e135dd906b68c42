"""What a rerun found, as lines for a person and as one JSON object. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from replay.retrain.compare import Difference, Distance
from replay.retrain.outcome import Rerun, Row, Tally

WHY_NOTHING_COMPARED = (
    "a synthetic tape names bytes that were never made: nothing is compared, and this is no proof"
)


def verdict(found: Rerun) -> str:
    """What the rerun shows, in one sentence."""
    deltas = found.deltas
    if found.synthetic:
        return WHY_NOTHING_COMPARED
    if found.first_broken is not None:
        return f"DIFFERS: {told(found.first_broken)}"
    if found.unread:
        return f"DIFFERS, and {found.unread} of the tape's blobs could not be read to go on with"
    if found.differs:
        return (
            "NOT A PROOF: this machine is not the one that was recorded "
            f"({'; '.join(found.differs)}); {deltas.identical:,} of {deltas.compared:,} deltas "
            "are identical"
        )
    part = _part(found)
    if not deltas.compared:
        return "NOTHING PROVED: no delta was compared" + (f" ({part})" if part else "")
    of_it = f" FOR A PART, {part}" if part else ""
    return f"PROVED{of_it}: all {deltas.compared:,} deltas are identical, bit for bit"


def _part(found: Rerun) -> str:
    """What of the tape was done again, if not all of it."""
    parts = [f"learner {name}" for name in found.only]
    if found.events < found.facts:
        parts.append(f"up to position {found.events:,} of {found.facts:,}")
    return ", ".join(parts)


def told(difference: Difference) -> str:
    """A difference with its place."""
    where = [f"position {difference.position}"]
    if difference.learner:
        where.append(f"learner {difference.learner}")
    if difference.learner_step is not None:
        where.append(f"its step {difference.learner_step}")
    if difference.fragment is not None:
        where.append(f"fragment {difference.fragment}")
    return f"{', '.join(where)}: {difference.what}"


def report_lines(found: Rerun) -> Iterator[str]:
    """The table of lives, the totals, and what follows from them."""
    yield (
        f"{'learner':<12}{'life':>8}{'steps':>9}{'adoptions':>11}{'deltas':>9}{'identical':>11}"
        f"{'differing':>11}{'checkpoints':>13}{'identical':>11}"
    )
    rows = [found.rows[life] for life in sorted(found.rows)]
    for row in rows:
        yield _line(row.learner, str(row.incarnation), row.steps, row.adoptions, row)
    yield _line(
        "all",
        str(len(rows)),
        sum(row.steps for row in rows),
        sum(row.adoptions for row in rows),
        Row("all", 0, deltas=found.deltas, checkpoints=found.checkpoints),
    )
    yield ""
    if not found.synthetic:
        yield f"merges     {_told_tally(found.merges)}"
        if found.models.compared:
            yield f"last model {'identical' if found.models.identical else 'DIFFERS'}"
    random_only = sum(row.random_only for row in rows)
    if random_only:
        yield f"{random_only} checkpoints are identical but for random states, which nobody draws"
    untold = sum(row.untold for row in rows)
    if untold:
        yield f"{untold} of the checkpoints that differ came after the last offer of a life that"
        yield "was cut off: what it adopted since then stands on no tape"
    if found.others:
        yield f"{found.others:,} deltas of learners not trained again were taken as stored"
    if found.stored_taken:
        yield f"{found.stored_taken:,} times the tape's stored bytes were taken to go on with"
    for row in rows:
        if row.distances:
            yield _told_distances(row)
    for one in found.losses:
        yield f"held-out loss {one.loss:.4f} after {one.step:,} merges, {one.tokens:,} tokens"
    if found.first_difference is not None and found.first_broken is None:
        yield f"first difference: {told(found.first_difference)}"
    if not (found.ok or found.text_told):
        yield "no evaluation tells the digest of the run's text: is this its own? (--data)"
    yield verdict(found)


def told_as_json(found: Rerun, seconds: float) -> Mapping[str, object]:
    """The fields that `replay retrain --json` prints."""
    first = found.first_broken or found.first_difference
    return {
        "ok": found.ok,
        "run": found.run,
        "verdict": verdict(found),
        "synthetic": found.synthetic,
        "fingerprint": {
            "same": not found.differs and not found.synthetic,
            "differs": list(found.differs),
        },
        "events": found.events,
        "learners": [_row_json(found.rows[life]) for life in sorted(found.rows)],
        "deltas": found.deltas.compared,
        "identical": found.deltas.identical,
        "merges": {"made": found.made, **_tally_json(found.merges)},
        "checkpoints": _tally_json(found.checkpoints),
        "first_difference": None if first is None else _difference_json(first),
        "stored_taken": found.stored_taken,
        "losses": [
            {"step": one.step, "tokens": one.tokens, "loss": one.loss} for one in found.losses
        ],
        "loss_first": found.losses[0].loss if found.losses else None,
        "loss_last": found.losses[-1].loss if found.losses else None,
        "seconds": round(seconds, 3),
    }


def _line(name: str, life: str, steps: int, adoptions: int, row: Row) -> str:
    deltas, checkpoints = row.deltas, row.checkpoints
    return (
        f"{name:<12}{life:>8}{steps:>9,}{adoptions:>11,}{deltas.compared:>9,}"
        f"{deltas.identical:>11,}{deltas.differing:>11,}{checkpoints.compared:>13,}"
        f"{checkpoints.identical:>11,}"
    )


def _told_tally(tally: Tally) -> str:
    return f"{tally.compared:,} made again, {tally.identical:,} identical"


def _told_distances(row: Row) -> str:
    middle, far = median(row.distances), max(row.distances, key=lambda one: one.relative)
    return (
        f"learner {row.learner} of life {row.incarnation}: deltas that differ lie "
        f"{middle.relative:.2e} of their norm away (cosine {middle.cosine:.6f}) in the middle, "
        f"{far.relative:.2e} ({far.cosine:.6f}) at most"
    )


def median(distances: list[Distance]) -> Distance:
    """The distance in the middle, by its relative size."""
    return sorted(distances, key=lambda one: one.relative)[len(distances) // 2]


def _row_json(row: Row) -> Mapping[str, object]:
    distances = [one for one in row.distances if math.isfinite(one.relative)]
    return {
        "learner": row.learner,
        "incarnation": row.incarnation,
        "steps": row.steps,
        "adoptions": row.adoptions,
        "untold": row.untold,
        "deltas": _tally_json(row.deltas),
        "checkpoints": _tally_json(row.checkpoints),
        "relative_median": median(distances).relative if distances else None,
        "relative_max": max((one.relative for one in distances), default=None),
        "cosine_min": min((one.cosine for one in distances), default=None),
    }


def _tally_json(tally: Tally) -> Mapping[str, int]:
    return {
        "compared": tally.compared,
        "identical": tally.identical,
        "differing": tally.differing,
        "unread": tally.unread,
    }


def _difference_json(difference: Difference) -> Mapping[str, object]:
    return {
        "position": difference.position,
        "learner": difference.learner or None,
        "learner_step": difference.learner_step,
        "fragment": difference.fragment,
        "what": difference.what,
    }
