"""The tables of the study's page, from results alone, with the paper's figures beside ours.

Pure: the same results give the same text. A part of which nothing is there gives a line that
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from decodiloco.config import Codecs
from decodiloco.store.codecs import coded_bytes
from replay.study import paper
from replay.study.cases import (
    ADOPTED,
    BASE,
    CHIPS,
    EXTRA_PERCENT,
    INNER_STEPS,
    LEARNERS,
    MOMENTA,
    PARTS,
    PLAIN,
    RULES,
    SAME_TIME_PERCENT,
    TRANSFERS_STEPS,
    Case,
    codecs_cases,
    quorum_cases,
)
from replay.study.results import Circumstances, Result
from replay.study.settings import ideal_time
from replay.study.summary import Difference, Spread, Summary

NOTHING = "–"
ELEMENTS = 2**20  # whole blocks
Modelled = Mapping[tuple[int, int], float]  # (learners, chips) -> goodput in percent


def tables_of(
    results: Sequence[Result], circumstances: Sequence[Circumstances], modelled: Modelled
) -> dict[str, str]:
    """Each table by the name of its place in the page."""
    summary = Summary(results)
    made: dict[str, Callable[[Summary], Iterator[str]]] = {
        "learners": lambda known: _learners(known, modelled),
        "rules": _rules,
        "quorum": _quorum,
        "adoption": _adoption,
        "momentum": _momentum,
        "scavenging": _scavenging,
        "codecs": _codecs,
    }
    found = {"circumstances": "\n".join(_circumstances(results, circumstances))}
    for part, table in made.items():
        there = any(map(summary.has, PARTS[part]()))
        lines = [*table(summary), *_noise(summary, part)] if there else ["No results yet."]
        found[part] = "\n".join(lines)
    return found


def _circumstances(
    results: Sequence[Result], circumstances: Sequence[Circumstances]
) -> Iterator[str]:
    seeds = sorted({result.seed for result in results})
    yield from _head("made with", "")
    for one in circumstances:
        yield f"| commit | `{one.commit}` |"
        yield f"| torch, CPU | {one.torch}, {one.cpu} |"
        yield f"| settings | digest `{one.settings}` |"
    minutes = sum(result.cpu_seconds for result in results) / 60
    yield f"| runs | {len(results)}, seeds {', '.join(map(str, seeds))} |"
    yield f"| CPU time | {minutes:.0f} min of one core |"


def _learners(summary: Summary, modelled: Modelled) -> Iterator[str]:
    yield from _head(
        "learners", "chips", "loss", "against no failures", "against data parallel",
        "goodput % (tape, model, paper)", "work merged %", "paper: text, vision",
    )  # fmt: skip
    for m in (1, *LEARNERS):
        for chips in CHIPS:
            case = Case(learners=m, chips=chips)
            row = paper.DATA_PARALLEL[chips] if m == 1 else paper.LEARNERS[chips][m]
            tape = _number(summary, case, "goodput")
            model = f"{modelled[m, chips]:.0f}" if chips else "100"
            yield _row(
                "1: data parallel" if m == 1 else str(m),
                _chips(chips),
                _loss(summary, case),
                _difference(summary, case, Case(learners=m)) if chips else NOTHING,
                _difference(summary, case, Case(learners=1, chips=chips)) if m > 1 else NOTHING,
                f"{tape}, {model}, {row[0]}",
                _number(summary, case, "merged") if m > 1 else NOTHING,
                _pair(row[1], row[2]),
            )


def _rules(summary: Summary) -> Iterator[str]:
    yield from _head(
        "learners", "model", "embedding", "loss", "against mean, mean", "paper: text, vision"
    )
    for m in (8, 16):
        plain = Case(learners=m, rule="mean", embedding_rule="mean")
        for rule in RULES:
            for embedding in RULES:
                case = Case(learners=m, rule=rule, embedding_rule=embedding)
                yield _row(
                    str(m),
                    rule,
                    embedding,
                    _loss(summary, case),
                    NOTHING if case == plain else _difference(summary, case, plain),
                    _pair(*paper.RULES[m, rule, embedding]),
                )


def _quorum(summary: Summary) -> Iterator[str]:
    yield from _head(
        "cluster", "K", "grace", "loss", "against K = 1 with grace", "learners in a merge",
        "steps between versions", "work merged %", "goodput % (tape, paper)",
        "paper: text, vision",
    )  # fmt: skip
    reference = Case(learners=8, slower_percent=18)
    for case in quorum_cases():
        unequal = case.slower_percent > 0
        row = paper.QUORUM.get((case.quorum, case.grace)) if unequal else None
        yield _row(
            "half 18 % slower" if unequal else "equal",
            str(case.quorum),
            "on" if case.grace else "off",
            _loss(summary, case),
            NOTHING if case == reference else _difference(summary, case, reference),
            _number(summary, case, "per_merge", 1),
            _number(summary, case, "steps_between", 1),
            _number(summary, case, "merged"),
            f"{_number(summary, case, 'goodput')}, {row[0] if row else NOTHING}",
            _pair(row[1], row[2]) if row else NOTHING,
        )


def _adoption(summary: Summary) -> Iterator[str]:
    yield from _head(
        "transfer, steps", "adoption", "loss", "against overwrite", "steps between versions",
        "work merged %",
    )  # fmt: skip
    for steps in TRANSFERS_STEPS:
        for kind in ADOPTED:
            case = Case(adopted=kind, transfer_steps=steps)
            plain = Case(transfer_steps=steps)
            yield _row(
                f"{steps:g}",
                kind,
                _loss(summary, case),
                NOTHING if case == plain else _difference(summary, case, plain),
                _number(summary, case, "steps_between", 1),
                _number(summary, case, "merged"),
            )


def _momentum(summary: Summary) -> Iterator[str]:
    yield from _head("momentum", *(f"H = {steps}" for steps in INNER_STEPS))
    for mu in MOMENTA:
        cases = [Case(momentum=mu, inner_steps=steps) for steps in INNER_STEPS]
        yield _row(f"{mu:g}", *(_loss(summary, case) for case in cases))
    halves = [Case(momentum=0.5, inner_steps=steps) for steps in INNER_STEPS]
    yield _row("versions of a fragment", *(_number(summary, case, "versions") for case in halves))


def _scavenging(summary: Summary) -> Iterator[str]:
    yield from _head(
        "extra %", "loss", "against no extra", "the same in %", "time (ideal, paper)",
        "4 learners alone in that time", "against them", "paper: loss in %, text, vision",
    )  # fmt: skip
    for percent in EXTRA_PERCENT:
        case = Case(extra_percent=percent)
        alone = Case(steps_percent=SAME_TIME_PERCENT.get(percent, 100))
        row = paper.SCAVENGING[percent]
        yield _row(
            str(percent),
            _loss(summary, case),
            _difference(summary, case, BASE) if percent else NOTHING,
            _percent(summary, case, BASE) if percent else NOTHING,
            f"{_time(summary, case)} ({ideal_time(case):.3f}, {row[0]:.2f})",
            _loss(summary, alone) if percent else NOTHING,
            _difference(summary, case, alone) if percent else NOTHING,
            f"{row[3]:+.2f}, {_pair(row[1], row[2])}",
        )


def _codecs(summary: Summary) -> Iterator[str]:
    yield from _head(
        "codec", "feedback", "bytes an element", "loss", "against bf16", "the same in %",
        "paper: loss in %",
    )  # fmt: skip
    for case in codecs_cases():
        feeds_back = Codecs(delta=case.codec, feedback=case.feedback).feeds_back
        yield _row(
            case.codec,
            "on" if feeds_back else "off",
            f"{coded_bytes(ELEMENTS, case.codec) / ELEMENTS:g}",
            _loss(summary, case),
            NOTHING if case == PLAIN else _difference(summary, case, PLAIN),
            NOTHING if case == PLAIN else _percent(summary, case, PLAIN),
            f"{paper.CODECS[case.codec]:+.2f}" if case.codec in paper.CODECS else NOTHING,
        )


def _noise(summary: Summary, part: str) -> Iterator[str]:
    """A line for each group of cases whose noise is alike."""
    groups: dict[str, list[Case]] = {}
    for case in PARTS[part]():
        if not (case.is_data_parallel and case.chips):  # the very same training as without chips
            groups.setdefault(_group(part, case), []).append(case)
    for group, cases in groups.items():
        noise = summary.noise(cases)
        if noise is not None:
            yield ""
            yield (
                f"Noise{group}: a difference of two means has a standard error of "
                f"{noise.error:.4f} ({noise.freedom} degrees of freedom); one below "
                f"{noise.reach:.4f} may well be chance (95 %)."
            )


def _group(part: str, case: Case) -> str:
    """Noise grows with the number of learners, and with a momentum that is too high."""
    if part in ("learners", "rules") and case.learners == 16:
        return ", 16 learners"
    if part == "momentum" and case.momentum == MOMENTA[-1]:
        return f", momentum {case.momentum:g}"
    return ", the others" if part in ("learners", "rules", "momentum") else ""


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield "|" + "---|" * len(names)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _loss(summary: Summary, case: Case) -> str:
    return told_spread(summary.spread(case)) if summary.has(case) else NOTHING


def told_spread(spread: Spread) -> str:
    """Mean and standard deviation, for people."""
    if spread.deviation is None:
        return f"{spread.mean:.4f}"
    return f"{spread.mean:.4f} ± {spread.deviation:.4f}"


def told_difference(difference: Difference) -> str:
    """Mean and standard error of a difference, for people."""
    if difference.error is None:
        return f"{difference.mean:+.4f}"
    return f"{difference.mean:+.4f} ± {difference.error:.4f}"


def _difference(summary: Summary, case: Case, other: Case) -> str:
    difference = summary.difference(case, other)
    return NOTHING if difference is None else told_difference(difference)


def _percent(summary: Summary, case: Case, other: Case) -> str:
    difference = summary.difference(case, other)
    if difference is None:
        return NOTHING
    return f"{100 * difference.mean / summary.spread(other).mean:+.2f}"


def _number(summary: Summary, case: Case, what: str, digits: int = 0) -> str:
    if not summary.has(case):
        return NOTHING
    return f"{summary.spread(case, what).mean:.{digits}f}"


def _time(summary: Summary, case: Case) -> str:
    if not (summary.has(case) and summary.has(BASE)):
        return NOTHING
    ours = summary.spread(case, "elapsed_steps").mean
    return f"{ours / summary.spread(BASE, 'elapsed_steps').mean:.3f}"


def _chips(chips: int) -> str:
    return f"{chips / 1e6:g} M" if chips else "none fail"


def _pair(text: float | None, vision: float | None) -> str:
    return NOTHING if text is None or vision is None else f"{text:g}, {vision:g}"
