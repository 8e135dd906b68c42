"""What a run's metrics are now: of its counts, its heartbeats and the sizes of its streams.

Pure. Knows values; the names stand in families.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from decodiloco.metrics.counted import Counted
from decodiloco.metrics.tally import Labels, Values
from decodiloco.status_view import Report, report_of
from decodiloco.syncer.quorum import verdict
from decodiloco.syncer.state import Learner
from streams.pulse import Beat
from streams.sizes import StreamSize

LEARNER_STATES = ("live", "left", "lost", "quarantined")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is seen of a run beside its facts, at one moment (Unix time).

    `beats` are the newest by `role/speaker`; `build` is our version and Python's.
    """

    now_seconds: float
    connected: bool
    beats: Mapping[str, Beat]
    streams: Sequence[StreamSize]
    build: tuple[str, str]


def values_of(counted: Counted, outlook: Outlook) -> Values:
    """Every counter and gauge that has a value, by name and labels (without `run`)."""
    report = report_of(counted.told, outlook.beats, outlook.now_seconds)
    found: Values = {name: dict(counts) for name, counts in counted.tally.counts.items()}
    found["build_info"] = {outlook.build: 1.0}
    for name, value in _of_run(counted, report, outlook).items():
        if value is not None:
            found[name] = {(): float(value)}
    found.update(_of_fragments(counted))
    found.update(_of_learners(counted, report, outlook))
    found.update(_of_syncers(counted, outlook))
    found.update(_of_mergers(report))
    found.update(_of_streams(counted, outlook))
    return found


def _of_run(
    counted: Counted, report: Report, outlook: Outlook
) -> dict[str, int | float | bool | None]:
    """What the run has one of; None where there is nothing to tell yet."""
    state, opened = counted.state, counted.told.opened_seconds
    below = [
        around
        for around in state.rounds.values()
        if around.is_open and not verdict(state, around).quorum_at
    ]
    return {
        "closed": state.closed is not None,
        "connected": outlook.connected,
        "evaluation_loss": counted.loss_newest,
        "evaluation_loss_best": counted.loss_best,
        "goodput_ratio": report["goodput"],
        "last_merge_timestamp_seconds": counted.last_merge_seconds,
        "learners_needed": report["learners_needed"],
        "merged_ratio": report["share_merged"],
        "mergers": len(report["mergers"]),
        "oldest_round_timestamp_seconds": min(
            (opened[number] for number in state.rounds if number in opened), default=None
        ),
        "participation_ratio": counted.participation,
        "quorum_size": state.config.quorum,
        "rounds_below_quorum": len(below),
        "rounds_open": len(state.rounds),
        "step": state.step,
        "tape_fence": state.fence,
        "tape_last_fact_timestamp_seconds": counted.told.time_seconds,
        "tape_position": state.position,
    }


def _of_fragments(counted: Counted) -> Values:
    return {
        "fragment_version": {
            (str(fragment),): version for fragment, version in enumerate(counted.state.versions)
        },
        "outer_gradient_norm": {
            (str(fragment),): norm for fragment, norm in sorted(counted.gradient_norms.items())
        },
    }


def _of_learners(counted: Counted, report: Report, outlook: Outlook) -> Values:
    learners = counted.state.learners
    told = {one["learner"]: one for one in report["learners"]}
    each: dict[str, dict[str, float | None]] = {
        "inner_steps": {id_: one.learner_step for id_, one in learners.items()},
        "learner_heard": {id_: f"learner/{id_}" in outlook.beats for id_ in learners},
        "learner_lag_versions": {id_: one["lag_versions"] for id_, one in told.items()},
        "learner_last_fact_timestamp_seconds": {**counted.last_fact_seconds},
        "learner_step_seconds": {id_: one.step_seconds for id_, one in learners.items()},
        "learner_upload_seconds": {id_: one.upload_seconds for id_, one in learners.items()},
        "learner_waiting": {id_: bool(one["waiting"]) for id_, one in told.items()},
        "loss": {id_: one["loss"] for id_, one in told.items()},
        "tokens_trained": {id_: one.tokens_trained for id_, one in learners.items()},
        "digests_differ": {**counted.differing},
    }
    found: Values = {
        name: {(id_,): float(value) for id_, value in sorted(values.items()) if value is not None}
        for name, values in each.items()
    }
    found["tokens_settled"] = {
        (id_, fate): tokens
        for id_ in sorted(learners)
        for fate, tokens in _settled(learners[id_]).items()
    }
    statuses: list[str] = [learner.status for learner in learners.values()]
    found["learners"] = {(state,): statuses.count(state) for state in LEARNER_STATES}
    return found


def _settled(learner: Learner) -> dict[str, float]:
    """Tokens by fate, as a mean over the fragments: each fragment settles each token once."""
    sums: dict[str, float] = {}
    for account in learner.accounts:
        for fate, tokens in account.totals().items():
            sums[fate] = sums.get(fate, 0.0) + tokens
    return {fate: tokens / len(learner.accounts) for fate, tokens in sums.items()}


def _of_syncers(counted: Counted, outlook: Outlook) -> Values:
    heard = {beat.speaker: beat for beat in outlook.beats.values() if beat.role == "syncer"}
    leader = counted.state.leader
    names = sorted({*heard, leader} - {""})
    return {
        "syncer_heard": {(name,): float(name in heard) for name in names},
        "syncer_is_leader": {
            (name,): float(name in heard and heard[name].values.get("leading") == 1)
            for name in names
        },
    }


def _of_mergers(report: Report) -> Values:
    return {
        "merger_merges": {(one["merger"],): one["merges"] for one in report["mergers"]},
        "merger_working": {(one["merger"],): one["working"] for one in report["mergers"]},
    }


def _of_streams(counted: Counted, outlook: Outlook) -> Values:
    streams = outlook.streams
    inboxes = counted.state.inboxes
    found: Values = {
        "stream_bytes": {(one.name,): one.bytes for one in streams},
        "stream_bytes_max": {
            (one.name,): one.bytes_max for one in streams if one.bytes_max is not None
        },
        "stream_messages": {(one.name,): one.messages for one in streams},
        "stream_replicas_behind": {(one.name,): one.replicas_behind for one in streams},
        "inbox_pending_messages": {
            (one.region,): max(0, one.last_sequence - inboxes.get(one.region, ("", 0))[1])
            for one in streams
            if one.region is not None
        },
        "tape_lag_facts": {},
    }
    for one in streams:
        if one.region is None:
            found["tape_lag_facts"] = _lags(counted, outlook, one.last_sequence)
    return found


def _lags(counted: Counted, outlook: Outlook, last: int) -> dict[Labels, float]:
    """How far behind the tape's end its followers are: us, the syncers, the evaluator."""
    lags: dict[Labels, float] = {("exporter",): max(0, last - counted.state.position)}
    for key, beat in sorted(outlook.beats.items()):
        position = beat.values.get("position")
        if beat.role != "learner" and isinstance(position, int):
            lags[(key,)] = max(0, last - position)
    return lags
