"""A comparison told to people and to scripts. `-` stands before what A says, `+` for B. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from replay.diff.fields import Changed
from replay.diff.knowledge import unlike
from replay.diff.merges import MERGES_MAX, Merge, Pair, Share, first_differing
from replay.diff.walk import Comparison, Parting, Side
from replay.show import Line, Widths, plain, time_of_day
from replay.show_words import cells_of, told_count

CHANGES_MAX = 6
FRACTION_SIGNS_MAX = 15
SAME, ONE, OTHER = "  ", "- ", "+ "
NAMES = ("A", "B")


def report_lines(found: Comparison, told: tuple[str, str], merges_max: int) -> Iterator[str]:
    """The whole comparison; `told` names the two places."""
    for mark, name, side, place in zip((ONE, OTHER), NAMES, found.sides, told, strict=True):
        yield f"{mark}{name}  {place}: {_side(side)}"
    yield ""
    if found.same_run:
        yield "one run: both tapes begin with the same record"
    else:
        yield "two runs: these are not tapes of the same run; their openings differ"
        yield from _changes(found.opening)
    yield _agreement(found)
    if found.parting is not None:
        yield ""
        yield from _parting(found.parting, found)
        yield ""
        yield from _consequences(found, merges_max)
        return
    yield from _ends(found)


def told_as_json(found: Comparison, merges_max: int) -> dict[str, object]:
    """The fields that `replay diff --json` prints."""
    parting = found.parting
    return {
        "agrees": found.agrees,
        "same_run": found.same_run,
        "opening": [_as_plain(each) for each in found.opening],
        "agreed_position": found.agreed.position,
        "agreed_step": found.agreed.step,
        "facts": [side.facts for side in found.sides],
        "steps": [side.step for side in found.sides],
        "parting": None if parting is None else _parting_as_json(parting),
        "merges_compared": sum(1 for pair in found.pairs if pair.one and pair.other),
        "merges_same": sum(1 for pair in found.pairs if not pair.differs),
        "merges": [_pair_as_json(pair) for pair in first_differing(found.pairs, merges_max)],
    }


def side_by_side(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[str]:
    """Named lines of both sides: those that are alike once, the others one under the other."""
    names = [*one, *(name for name in other if name not in one)]
    width = max((len(name) for name in names), default=0)
    for name in names:
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs:
            yield f"{SAME}  {name:{width}}  {mine}"
            continue
        if mine is not None:
            yield f"{ONE}  {name:{width}}  {mine}"
        if theirs is not None:
            yield f"{OTHER}  {name:{width}}  {theirs}"


def _side(side: Side) -> str:
    loss = "" if side.loss is None else f", loss {side.loss:.4f}"
    closed = ", closed" if side.closed else ""
    return f"run {side.run}, {_facts(side.facts)}, step {side.step}{loss}{closed}"


def _facts(count: int) -> str:
    return f"{count} fact" + ("" if count == 1 else "s")


def _agreement(found: Comparison) -> str:
    agreed = found.agreed
    if not found.same_run and agreed.position == 1:
        return "nothing after the openings is the same"
    what = "both agree" if found.same_run else "after the openings, both tell the same facts"
    when = time_of_day(agreed.time_seconds)
    return f"{what} up to position {agreed.position} ({when}, step {agreed.step})"


def _ends(found: Comparison) -> Iterator[str]:
    longer = found.longer
    if longer == 0:
        yield "and end there, both of them"
        return
    name, short = ("A", "B") if longer > 0 else ("B", "A")
    more = _facts(abs(longer))
    yield f"{name} goes on for {more} more; {short} tells no more, and contradicts none of it"


def _parting(parting: Parting, found: Comparison) -> Iterator[str]:
    position = parting.one.position
    yield f"they part at position {position}"
    for mark, record, offers in zip(
        (ONE, OTHER), (parting.one, parting.other), parting.offers, strict=True
    ):
        run, cells = cells_of(record.event, offers)
        texts = [run, *(f"{name}: {cells[name]}" for name in sorted(cells))]
        line = Line(
            record.position,
            record.time_seconds,
            found.agreed.step,
            "; ".join(text for text in texts if text),
            {},
        )
        yield mark + plain(line, (), Widths())
    yield from _changes(parting.changed)
    one, other = parting.knew
    if one is None and other is None:
        yield "what each syncer knew is not told: no state can be folded from here"
        return
    who = "both syncers" if one == other else "each syncer"
    yield f"what {who} knew before it:"
    yield from side_by_side(one or {}, other or {})
    for name, knew in zip(NAMES, parting.knew, strict=True):
        if knew is None:
            yield f"    {name}'s is not told: its state cannot be folded from here"


def _changes(changes: Sequence[Changed]) -> Iterator[str]:
    for each in changes[:CHANGES_MAX]:
        yield f"    {each}"
    if len(changes) > CHANGES_MAX:
        yield f"    and {len(changes) - CHANGES_MAX} more (--json tells all)"


def _consequences(found: Comparison, merges_max: int) -> Iterator[str]:
    by_both = [pair for pair in found.pairs if pair.one and pair.other]
    same = sum(1 for pair in by_both if not pair.differs)
    a, b = (side.merges.count for side in found.sides)
    yield (
        f"what follows: merges from there on: A {a}, B {b}; "
        f"{same} of the {len(by_both)} that both made are the same"
    )
    if max(a, b) > MERGES_MAX:
        yield f"of each side the first {MERGES_MAX:,} were compared"
    shown = first_differing(found.pairs, merges_max)
    for pair in shown:
        yield f"f{pair.fragment} to v{pair.version}: {', '.join(pair.differs)}"
        yield from side_by_side(_merge_lines(pair.one), _merge_lines(pair.other))
    fragments = len({pair.fragment for pair in found.pairs if pair.differs})
    if fragments > len(shown):
        yield f"and {fragments - len(shown)} more fragments part (--merges {fragments} shows all)"


def _merge_lines(merge: Merge | None) -> dict[str, str]:
    if merge is None:
        return {"merge": "not made"}
    event = merge.event
    lines = {
        "merge": f"at position {merge.position}, r{event.round}, step {event.step}, "
        f"|g| {event.outer_gradient_norm:.3g}",
        "parameters": event.parameters.digest.hex()[:16],
        "momentum": event.momentum.digest.hex()[:16],
    }
    for share in merge.shares:
        lines[unlike(share.learner, lines)] = (
            f"step {share.learner_step}, {share.inner_steps} steps {told_count(share.tokens)} tok, "
            f"weight {_percent(share.weight)}, delta {share.manifest.digest.hex()[:8]}"
        )
    for learner, reason in merge.left_out:
        lines[f"{learner} left out"] = reason
    return lines


def _percent(weight: Fraction) -> str:
    exact = f"{weight.numerator}/{weight.denominator}"
    told = f"{100 * float(weight):.2f} %"
    return f"{exact} = {told}" if len(exact) <= FRACTION_SIGNS_MAX else told


def _as_plain(change: Changed) -> dict[str, str]:
    return {"path": change.path, "a": change.one, "b": change.other}


def _parting_as_json(parting: Parting) -> dict[str, object]:
    return {
        "position": parting.one.position,
        "kinds": [parting.one.event.kind, parting.other.event.kind],
        "changed": [_as_plain(each) for each in parting.changed],
        "knew": [None if knew is None else dict(knew) for knew in parting.knew],
    }


def _pair_as_json(pair: Pair) -> dict[str, object]:
    return {
        "fragment": pair.fragment,
        "version": pair.version,
        "differs": list(pair.differs),
        "a": _merge_as_json(pair.one),
        "b": _merge_as_json(pair.other),
    }


def _merge_as_json(merge: Merge | None) -> dict[str, object] | None:
    if merge is None:
        return None
    return {
        "position": merge.position,
        "step": merge.event.step,
        "round": merge.event.round,
        "contributions": [_share_as_json(share) for share in merge.shares],
        "left_out": [{"learner": who, "reason": reason} for who, reason in merge.left_out],
        "parameters": merge.event.parameters.digest.hex(),
        "momentum": merge.event.momentum.digest.hex(),
    }


def _share_as_json(share: Share) -> dict[str, object]:
    return {
        "learner": share.learner,
        "learner_step": share.learner_step,
        "inner_steps": share.inner_steps,
        "tokens": share.tokens,
        "weight": f"{share.weight.numerator}/{share.weight.denominator}",
        "delta": share.manifest.digest.hex(),
    }
