"""What `status` shows, made from the syncer's own state and from heartbeats.

Pure. Record times are used for shares and ages that people read; no decision reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from decodiloco.opening import Opening
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.quorum import verdict
from decodiloco.syncer.rounds import answers
from decodiloco.syncer.state import Learner, Round, State
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    EvaluationReported,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    RoundOpened,
)
from streams.pulse import Beat

Report = dict[str, Any]

VERSIONS_SHOWN_MAX = 32
RECENT_ROUNDS = 8
SLOWER = 1.25  # rounds that come later than so many paces are told


@dataclass(slots=True)
class Life:
    """One life of a learner: since when, from which step, and its end if it had one."""

    began_seconds: float
    began_step: int
    ended_seconds: float | None = None
    ended_step: int = 0


@dataclass(slots=True)
class Followed:
    """The syncer's state, and beside it what people want to know that decides nothing."""

    state: State
    opened_seconds: dict[int, float] = field(default_factory=dict)
    pace_seconds: float = 0.0
    answered: dict[str, tuple[int, int]] = field(default_factory=dict)
    lives: dict[str, list[Life]] = field(default_factory=dict)
    evaluations: list[EvaluationReported] = field(default_factory=list)
    time_seconds: float = 0.0

    def hear(self, envelope: Envelope) -> None:
        """Folds one fact."""
        before = self.state
        self.state = fold(before, envelope)
        self.time_seconds = envelope.time_seconds
        match envelope.event:
            case RoundOpened(round=number, pace_seconds=pace_seconds):
                self.opened_seconds[number] = envelope.time_seconds
                self._forget_rounds()
                self.pace_seconds = pace_seconds
            case DeltaOffered(learner=learner, round=number, fragment=fragment):
                self.answered[learner] = (number, fragment)
            case EvaluationReported() as report:
                self.evaluations.append(report)
            case LearnerJoined() as joined:
                self._end_life(joined.learner)
                life = Life(envelope.time_seconds, joined.learner_step)
                self.lives.setdefault(joined.learner, []).append(life)
            case LearnerLeft(learner=learner) | LearnerLost(learner=learner):
                if self.state.learners[learner].status != "live":
                    self._end_life(learner)
            case _:
                pass

    def _forget_rounds(self) -> None:
        """Of the rounds that are over only the newest are told of; a run may have millions."""
        for number in list(self.opened_seconds)[: -RECENT_ROUNDS - 1]:
            if number not in self.state.rounds:
                del self.opened_seconds[number]

    def _end_life(self, learner: str) -> None:
        lives = self.lives.get(learner, [])
        if lives and lives[-1].ended_seconds is None:
            lives[-1].ended_seconds = self.time_seconds
            lives[-1].ended_step = self.state.learners[learner].learner_step


def followed(opening: Opening) -> Followed:
    """A run before its first fact."""
    return Followed(begin(opening))


def report_of(followed: Followed, beats: Mapping[str, Beat], now_seconds: float) -> Report:
    """The whole status as plain values; `beats` are the newest by `role/speaker`.

    `now_seconds` is Unix time, as the record's own times are.
    """
    state = followed.state
    learners = [
        _learner(followed, state.learners[id_], beats.get(f"learner/{id_}"))
        for id_ in sorted(state.learners)
    ]
    losses = followed.evaluations
    merged, settled = _merged_and_settled(state)
    share = merged / settled if settled else None
    return {
        "run": state.run,
        "phase": "closed" if state.closed else "closing" if state.closing else "open",
        "position": state.position,
        "step": state.step,
        "end_steps": state.config.end.steps,
        "tokens": state.tokens,
        "tokens_per_second": sum(learner["tokens_per_second"] for learner in learners),
        "leader": state.leader or None,
        "fence": state.fence,
        "leader_waits": _leader_waits(state, beats),
        "syncers_heard": sorted(b.speaker for b in beats.values() if b.role == "syncer"),
        "mergers": _mergers(beats),
        "versions": list(state.versions),
        "keep_merges": state.keep_merges or None,
        "horizon": state.retention.horizon.position if state.retention.horizon else 0,
        "pace_seconds": followed.pace_seconds or None,
        "round_seconds": _round_seconds(followed),
        "rounds": [
            _round(followed, state.rounds[number], now_seconds) for number in sorted(state.rounds)
        ],
        "learners": learners,
        "learners_needed": max(state.config.quorum, state.config.learners_min),
        "share_merged": share,
        "goodput": _goodput(followed, share, now_seconds),
        "loss_first": losses[0].loss if losses else None,
        "loss_last": losses[-1].loss if losses else None,
        "loss_step": losses[-1].step if losses else None,
    }


def _leader_waits(state: State, beats: Mapping[str, Beat]) -> str:
    """What the leader's heartbeat says that it waits for; empty for nothing."""
    beat = beats.get(f"syncer/{state.leader}")
    return beat.text("waiting") if beat else ""


def _mergers(beats: Mapping[str, Beat]) -> list[Report]:
    """Those that are heard; their merges are counted from their start."""
    heard = sorted((b for b in beats.values() if b.role == "merger"), key=lambda b: b.speaker)
    return [
        {"merger": b.speaker, "merges": b.count("merges"), "working": b.count("working")}
        for b in heard
    ]


def lines_of(report: Report) -> list[str]:
    """The report for people, without colours, to fit 80 columns."""
    is_open = report["phase"] == "open"
    of = f" of {report['end_steps']}" if report["end_steps"] and is_open else ""
    return [
        f"run        {report['run']}: {report['phase']} at step {report['step']}{of}, "
        f"position {report['position']}",
        f"syncer     {_led(report)}",
        *_merger_lines(report),
        f"tokens     {report['tokens']:,}, {report['tokens_per_second']:,.0f} a second; "
        f"merged {_percent(report['share_merged'])}; goodput {_percent(report['goodput'])}",
        f"loss       {_loss(report)}",
        f"versions   {_versions(report['versions'])}",
        *_retention_lines(report),
        *(_slow_lines(report) if is_open else []),
        "",
        *_learner_lines(report),
        *([""] if report["rounds"] else []),
        *(_round_line(around) for around in report["rounds"]),
    ]


def _led(report: Report) -> str:
    leader, heard = report["leader"], report["syncers_heard"]
    if report["phase"] == "closed":
        return f"{leader} led to the end (fence {report['fence']})"
    others = ", ".join(syncer for syncer in heard if syncer != leader)
    if leader in heard:
        waits = f", waits for the {report['leader_waits']}" if report["leader_waits"] else ""
        return f"{leader} leads (fence {report['fence']}){waits}; stands by: {others or 'nobody'}"
    who = f"{leader} led last (fence {report['fence']}) and is SILENT" if leader else "nobody leads"
    if others:
        return f"{who}; {others} will take over"
    return f"{who}; start one with `decodiloco syncer`"


def _merger_lines(report: Report) -> list[str]:
    """Said where there are mergers: most runs have none."""
    told = [
        f"{one['merger']} has done {one['merges']:,}, {one['working']} under way"
        for one in report["mergers"]
    ]
    return [f"{'' if number else 'mergers':<11}{line}" for number, line in enumerate(told)]


def _versions(versions: list[int]) -> str:
    if len(versions) > VERSIONS_SHOWN_MAX:
        return f"{min(versions)} to {max(versions)} in {len(versions)} fragments"
    return " ".join(str(version) for version in versions)


def _retention_lines(report: Report) -> list[str]:
    """Said where bytes are let go of, or will be."""
    if not (report["horizon"] or report["keep_merges"]):
        return []
    exact = f"exact from position {report['horizon']} on" if report["horizon"] else "all are here"
    keeps = f"at least {report['keep_merges']} merges" if report["keep_merges"] else "all from now"
    return [f"bytes      {exact}; kept: {keeps}"]


def _slow_lines(report: Report) -> list[str]:
    """Said where rounds open more slowly than their pace: as many as may be open are."""
    pace, each = report["pace_seconds"], report["round_seconds"]
    if pace is None or each is None or each <= SLOWER * pace:
        return []
    return [
        f"pace       a round each {each:.2f} s, not each {pace:.2f} s: see below whom they miss;",
        "           `decodiloco doctor` tells what the network takes",
    ]


def _learner_lines(report: Report) -> list[str]:
    learners, needed = report["learners"], report["learners_needed"]
    lines = []
    if learners:
        width = max(8, *(len(learner["learner"]) for learner in learners))
        lines.append(
            f"{'learner':<{width}}  {'state':<13}{'step':>8}{'tokens/s':>10}{'lag':>5}{'loss':>8}"
            "  last answer"
        )
        lines.extend(_learner_line(learner, width) for learner in learners)
        lines.extend(
            f"{learner['learner']} is quarantined for {learner['quarantined_for']}; start it again "
            "once it is mended"
            for learner in learners
            if learner["quarantined_for"]
        )
    if len(learners) < needed:
        are = "has" if len(learners) == 1 else "have"
        lines.append(f"rounds begin when {needed} learners have joined; {len(learners)} {are}")
    return lines


def _learner_line(learner: Report, width: int) -> str:
    state = f"waits: {learner['waiting']}" if learner["waiting"] else learner["state"]
    loss = "-" if learner["loss"] is None else f"{learner['loss']:.3f}"
    answer = "none yet"
    if learner["last_round"] is not None:
        answer = f"round {learner['last_round']}, fragment {learner['last_fragment']}"
    return (
        f"{learner['learner']:<{width}}  {state:<13}{learner['step']:>8}"
        f"{learner['tokens_per_second']:>10,.0f}{learner['lag_versions']:>5}{loss:>8}  {answer}"
    )


def _round_line(around: Report) -> str:
    missed = ", ".join(around["missed"])
    long = f" for {around['seconds']:.0f} s" if around["seconds"] >= 1 else ""
    whom = f"missed{long}: {missed}" if missed else "all answered"
    return (
        f"round {around['round']}: fragment {around['fragment']} towards version "
        f"{around['version']}, {around['phase']}; {whom}"
    )


def _learner(followed: Followed, learner: Learner, beat: Beat | None) -> Report:
    step = max(learner.learner_step, beat.count("learner_step") if beat else 0)
    step_seconds = (beat.seconds("step_seconds") if beat else 0.0) or learner.step_seconds or 0.0
    tokens = max(learner.tokens_trained, beat.count("tokens_trained") if beat else 0)
    live = learner.status == "live"
    rate = tokens / step / step_seconds if live and step and step_seconds else 0.0
    waiting = beat.text("waiting") if beat else ""
    loss = beat.number("loss") if beat else None
    answered = followed.answered.get(learner.id)
    newest = followed.state.versions
    return {
        "learner": learner.id,
        "state": _state(learner, beat, waiting),
        "incarnation": learner.incarnation,
        "step": step,
        "tokens": tokens,
        "tokens_per_second": rate,
        "lag_versions": max(
            (a - b for a, b in zip(newest, learner.adopted, strict=True)), default=0
        ),
        "loss": (learner.loss if loss is None else loss) if step else None,
        "last_round": answered[0] if answered else None,
        "last_fragment": answered[1] if answered else None,
        "waiting": waiting or None,
        "quarantined_for": learner.marked_for if learner.status == "quarantined" else None,
    }


def _state(learner: Learner, beat: Beat | None, waiting: str) -> str:
    if learner.status != "live":
        return learner.status
    if beat is None:
        return "silent"
    return "waiting" if waiting else "training"


def _round(followed: Followed, around: Round, now_seconds: float) -> Report:
    state = followed.state
    opened = followed.opened_seconds.get(around.number, now_seconds)
    if around.is_open:
        answered = [offer.learner for offer in answers(state, around)]
    else:
        answered = sorted(state.offers[p].learner for p in around.offers if p in state.offers)
    return {
        "round": around.number,
        "fragment": around.fragment,
        "version": around.version,
        "phase": "open" if around.is_open else "merging",
        "answered": answered,
        "missed": list(verdict(state, around).missed) if around.is_open else [],
        "seconds": max(0.0, now_seconds - opened),
    }


def _round_seconds(followed: Followed) -> float | None:
    """The median time between the newest openings; None before a second one."""
    newest = list(followed.opened_seconds.values())[-RECENT_ROUNDS - 1 :]
    gaps = [after - before for before, after in pairwise(newest)]
    return median(gaps) if gaps else None


def _merged_and_settled(state: State) -> tuple[int, int]:
    merged = settled = 0
    for id_ in sorted(state.learners):
        for fragment in range(len(state.versions)):
            fates = state.learners[id_].fates(fragment)
            merged += fates["merged"]
            settled += sum(fates.values()) - fates["open"]
    return merged, settled


def _goodput(followed: Followed, share: float | None, now_seconds: float) -> float | None:
    """Time in steps whose work was merged, over all the time that learners were there."""
    useful = allocated = 0.0
    end = followed.time_seconds if followed.state.closed else now_seconds
    for id_ in sorted(followed.lives):
        learner = followed.state.learners[id_]
        for life in followed.lives[id_]:
            last_step = learner.learner_step if life.ended_seconds is None else life.ended_step
            last_seconds = end if life.ended_seconds is None else life.ended_seconds
            useful += max(0, last_step - life.began_step) * (learner.step_seconds or 0.0)
            allocated += last_seconds - life.began_seconds
    if share is None or allocated <= 0:
        return None
    return min(1.0, useful / allocated) * share


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _loss(report: Report) -> str:
    if report["loss_last"] is None:
        return "no evaluation yet"
    first, last, step = report["loss_first"], report["loss_last"], report["loss_step"]
    return f"{first:.3f} -> {last:.3f} at step {step}, on held-out text"
