"""A proof told to people and to scripts. Knows no store and no tape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from replay.facts_check import FateRow
from replay.show_words import told_bytes
from replay.verify import Proof

COLUMNS = ("merged", "left_out", "refused", "superseded", "dropped", "lost", "open")


def told_as_json(proof: Proof) -> Mapping[str, object]:
    """The fields that `replay verify --json` prints."""
    difference = proof.first_difference
    return {
        "ok": proof.ok,
        "events": proof.events,
        "merges": proof.merges,
        "merges_checked": proof.merges_checked,
        "bytes_checked": proof.bytes_checked,
        **({"synthetic": True} if proof.synthetic else {}),
        **({"horizon": proof.horizon} if proof.horizon else {}),
        "first_difference": None
        if difference is None
        else {"what": difference.what, "position": difference.position, "key": difference.key},
    }


def report_lines(proof: Proof, by_fragment: bool) -> Iterator[str]:
    """What was checked, what became of the tokens, and the verdict."""
    yield f"run {proof.run}, read from {proof.place}" + (
        f", blobs in {proof.store}" if proof.store else ""
    )
    yield (
        f"{proof.events} facts on the tape; {proof.merges_checked} of {proof.merges} merges made "
        f"again; {told_bytes(proof.bytes_checked)} of blobs read and compared"
    )
    if proof.horizon:
        yield (
            f"horizon: position {proof.horizon}; of what stands up to there only the facts are "
            "checked: its bytes were let go of"
        )
    if proof.synthetic:
        yield "SYNTHETIC: nobody trained this; only its facts and its opening are checked"
    difference = proof.first_difference
    if difference is None:
        yield from fate_lines(proof.fates, by_fragment)
        ended = "" if proof.closed else " (the run is not closed: this holds as far as it goes)"
        what = "every digest, merge and token is what the tape says"
        if proof.horizon:
            what = "every fact and token, and every merge above the horizon, is what the tape says"
        if proof.synthetic:
            what = "the facts follow from each other; no merge and no delta was there to check"
        yield f"agreed: {what}{ended}"
        return
    where = "" if difference.position is None else f" at position {difference.position}"
    yield f"DIFFERS{where}: {difference.what}"
    if difference.key is not None:
        yield f"  blob {difference.key}: restore it from a copy, or name a sound store with --store"
    elif difference.position is not None:
        place = proof.place
        yield f"  look there: replay show {place} --from {max(1, difference.position - 10)}"


def fate_lines(rows: Iterable[FateRow], by_fragment: bool) -> Iterator[str]:
    """The table of token fates; each line adds up to the tokens trained.

    Without `by_fragment` one line a learner, summed over its fragments.
    """
    rows = list(rows)
    if not rows:
        return
    if not by_fragment:
        rows = _by_learner(rows)
    yield "tokens by fate (each line adds up to trained" + (
        ")" if by_fragment else ", summed over all fragments)"
    )
    names = ("learner", *(("fragment",) if by_fragment else ()), "trained", *COLUMNS)
    yield "".join(f"{name:>14}" for name in names)
    for row in rows:
        counts = [row.fates[name] for name in COLUMNS]
        assert sum(counts) == row.trained, f"{row.learner}: {counts} of {row.trained}"
        cells = (row.learner, *((str(row.fragment),) if by_fragment else ()))
        numbers = (f"{count:,}" for count in (row.trained, *counts))
        yield "".join(f"{cell:>14}" for cell in (*cells, *numbers))


def _by_learner(rows: list[FateRow]) -> list[FateRow]:
    sums: dict[str, FateRow] = {}
    for row in rows:
        before = sums.get(row.learner, FateRow(row.learner, 0, 0, dict.fromkeys(COLUMNS, 0)))
        fates = {name: before.fates[name] + row.fates[name] for name in COLUMNS}
        sums[row.learner] = FateRow(row.learner, 0, before.trained + row.trained, fates)
    return list(sums.values())
