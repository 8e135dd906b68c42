"""What `status` shows, made from the syncer's own state and from heartbeats.

Pure. Record times are used for shares and ages that people read; no decision reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
            case RoundOpened(round=number):
                self.opened_seconds[number] = envelope.time_seconds
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
        "syncers_heard": sorted(b.speaker for b in beats.values() if b.role == "syncer"),
        "versions": list(state.versions),
        "rounds": [
            _round(followed, state.rounds[number], now_seconds) for number in sorted(state.rounds)
        ],
        "learners": learners,
        "share_merged": share,
        "goodput": _goodput(followed, share, now_seconds),
        "loss_first": losses[0].loss if losses else None,
        "loss_last": losses[-1].loss if losses else None,
        "loss_step": losses[-1].step if losses else None,
    }


def lines_of(report: Report) -> list[str]:
    """The report for people, without colours."""
    led = f"{report['leader']} leads (fence {report['fence']})" if report["leader"] else "no leader"
    heard = ", ".join(report["syncers_heard"]) or "none"
    of = f" of {report['end_steps']}" if report["end_steps"] else ""
    lines = [
        f"run {report['run']}: {report['phase']} at step {report['step']}{of}, position "
        f"{report['position']}; {led}; syncers heard now: {heard}",
        f"{report['tokens']:,} tokens, {report['tokens_per_second']:,.0f} a second; merged "
        f"{_percent(report['share_merged'])}; goodput {_percent(report['goodput'])}; "
        f"{_loss(report)}",
        f"versions of the fragments: {' '.join(str(version) for version in report['versions'])}",
        f"{'learner':<12}{'state':<12}{'step':>8}{'tokens/s':>10}{'lag':>5}{'loss':>8}"
        "  last answer, and why it waits",
    ]
    for learner in report["learners"]:
        loss = "-" if learner["loss"] is None else f"{learner['loss']:.3f}"
        lines.append(
            f"{learner['learner']:<12}{learner['state']:<12}{learner['step']:>8}"
            f"{learner['tokens_per_second']:>10,.0f}{learner['lag_versions']:>5}{loss:>8}"
            f"  {_answer(learner)}"
        )
    for around in report["rounds"]:
        missed = ", ".join(around["missed"])
        whom = f"missed for {around['seconds']:.0f} s: {missed}" if missed else "all answered"
        lines.append(
            f"round {around['round']}: fragment {around['fragment']} towards version "
            f"{around['version']}, {around['phase']}; {whom}"
        )
    return lines


def _learner(followed: Followed, learner: Learner, beat: Beat | None) -> Report:
    values = beat.values if beat else {}
    step = max(learner.learner_step, int(values.get("learner_step", 0)))
    step_seconds = float(values.get("step_seconds", 0.0)) or learner.step_seconds or 0.0
    tokens = max(learner.tokens_trained, int(values.get("tokens_trained", 0)))
    live = learner.status == "live"
    rate = tokens / step / step_seconds if live and step and step_seconds else 0.0
    waiting = str(values.get("waiting", ""))
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
        "loss": values.get("loss", learner.loss) if step else None,
        "last_round": answered[0] if answered else None,
        "last_fragment": answered[1] if answered else None,
        "waiting": waiting or None,
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
    return f"validation loss {first:.3f} -> {last:.3f} at step {step}"


def _answer(learner: Report) -> str:
    answered = "none yet"
    if learner["last_round"] is not None:
        answered = f"round {learner['last_round']}, fragment {learner['last_fragment']}"
    return f"{answered}; {learner['waiting']}" if learner["waiting"] else answered
