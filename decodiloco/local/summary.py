"""What a finished demo has to say: the same facts in words and as one JSON object.

Pure: from the story alone. It must not know processes, servers or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodiloco.local.story import Story


def summarized(story: Story, folder: str) -> dict[str, Any]:
    """The summary as plain values; `steps` are inner steps of all learners together."""
    lanes = [story.lanes[id_] for id_ in sorted(story.lanes)]
    losses = [report.loss for report in story.evaluations]
    outages = [outage for outage in story.outages if outage.seconds is not None]
    closed = story.closed
    return {
        "dir": folder,
        "tape": f"{folder}/run.tape",
        "run": story.run,
        "learners": len(lanes),
        "tokens": story.tokens,
        "steps": sum(lane.learner_step for lane in lanes),
        "merges": story.step,
        "refused": story.refused,
        "kills": len(story.struck),
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "longest_merge_gap_seconds": round(story.merge_gap_seconds, 3),
        "learner_steps": {lane.id: lane.learner_step for lane in lanes},
        "lives": {lane.id: lane.lives for lane in lanes},
        "struck": [{"target": kill.target, "step": kill.seed} for kill in story.struck],
        "takeover_seconds": max((round(o.seconds or 0.0, 3) for o in outages), default=None),
        "outages": [
            {"syncer": outage.syncer, "learners_stepped": outage.stepped()} for outage in outages
        ],
        "left_early": [lane.id for lane in lanes if lane.state != "finished"],
        "digests_equal": story.digests_equal(),
        "digest": closed.digest.hex() if closed else None,
    }


def in_words(summary: Mapping[str, Any]) -> list[str]:
    """The summary for people, a fact a line."""
    steps = ", ".join(f"{id_} {count}" for id_, count in summary["learner_steps"].items())
    lines = [
        f"{summary['learners']} learners trained {summary['tokens']:,} tokens in "
        f"{summary['steps']:,} inner steps ({steps})",
        f"{summary['merges']} merges; {_count(summary['refused'], 'message')} refused",
        *_loss(summary["loss_first"], summary["loss_last"]),
        *_kills(summary),
    ]
    lines.append(f"longest time between two merges: {summary['longest_merge_gap_seconds']:.1f} s")
    lines.extend(_end(summary))
    return lines


def next_commands(summary: Mapping[str, Any], replay: str = "replay") -> list[str]:
    """The three commands that look into the run, `replay` being how it is called here."""
    folder = summary["dir"]
    middle = max(1, summary["merges"] // 2)
    commands = {
        f"{replay} verify {folder}": "makes every merge again from the stored bytes",
        f"{replay} show {folder}": "what happened, one line a fact",
        f"{replay} state {folder} --step {middle} -o m.safetensors": "the model as it stood then",
    }
    width = max(map(len, commands))
    return [f"{command:<{width}}   {does}" for command, does in commands.items()]


def _loss(first: float | None, last: float | None) -> list[str]:
    if first is None or last is None:
        return ["no evaluation was reported"]
    change = 100.0 * (1.0 - last / first) if first else 0.0
    return [f"validation loss of the merged model: {first:.3f} -> {last:.3f} ({change:.0f} % less)"]


def _end(summary: Mapping[str, Any]) -> list[str]:
    early = ", ".join(summary["left_early"])
    lines = [f"left before the end: {early}"] if early else []
    if summary["digests_equal"]:
        who = "those that stayed" if early else "all learners"
        return [*lines, f"{who} hold the same model at the end: {summary['digest'][:16]}"]
    if summary["digests_equal"] is None:
        return lines
    return [*lines, "ALARM: the learners do not hold the same model at the end"]


def _kills(summary: Mapping[str, Any]) -> list[str]:
    if not summary["kills"]:
        return ["nothing was killed"]
    told = ", ".join(f"{kill['target']} at step {kill['step']}" for kill in summary["struck"])
    lines = [f"killed with -9 on purpose: {told}"]
    if summary["takeover_seconds"] is not None:
        lines.append(f"the standby syncer took over in {summary['takeover_seconds']:.1f} s")
    for outage in summary["outages"]:
        steps = ", ".join(f"{id_} +{n}" for id_, n in outage["learners_stepped"].items())
        waited = [id_ for id_, n in outage["learners_stepped"].items() if n == 0]
        verdict = f"; WAITED: {', '.join(waited)}" if waited else "; nobody waited"
        heard = f"{steps}{verdict}" if steps else "no learner was heard"
        lines.append(f"learners while {outage['syncer']} was dead: {heard}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
