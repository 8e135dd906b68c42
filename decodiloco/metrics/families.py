"""Every metric that `decodiloco exporter` serves, in one table. Knows names, not values.

All carry the label `run`; those of their own follow. No label has values without bound: no
position, no key, no version. Durations are seconds, moments are Unix time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "decodiloco_"

Kind = Literal["counter", "gauge", "histogram"]

SHORT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without prefix and suffix, its kind, its labels beside `run`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """As a query names it; a histogram's series add `_bucket`, `_sum` and `_count`."""
        return f"{PREFIX}{self.name}" + ("_total" if self.kind == "counter" else "")


def _counter(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "counter", help_, labels)


def _gauge(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "gauge", help_, labels)


def _times(name: str, help_: str, bounds: tuple[float, ...]) -> Family:
    return Family(f"{name}_seconds", "histogram", help_, (), bounds)


FAMILIES: tuple[Family, ...] = (
    # Tokens and steps
    _counter("tokens_trained", "Tokens trained, as the learner counts them.", "learner"),
    _counter(
        "tokens_settled",
        "Tokens by what became of them, as a mean over the fragments.",
        "learner",
        "fate",
    ),
    _counter("inner_steps", "Inner steps taken, over all lives of the learner.", "learner"),
    # Facts
    _counter("facts", "Facts on the tape, by kind.", "kind"),
    _counter("offers", "Offers admitted.", "learner"),
    _counter("offers_refused", "Offers refused by a word gate.", "learner", "reason"),
    _counter("offers_left_out", "Offers left out of their merge, by why.", "reason"),
    _counter("messages_refused", "Messages that could not be read or may not be said.", "reason"),
    _counter("merges", "Merges: versions made.", "fragment"),
    _counter("merger_merges", "Merges that the merger has done since its start.", "merger"),
    _counter("merges_abandoned", "Merges given up for fewer than a quorum passed the gates."),
    _counter("windows_closed", "Windows closed, by why.", "reason"),
    _counter("learners_lost", "Learners given up, silent or quarantined.", "learner", "reason"),
    _counter("learners_joined", "Lives of a learner that began.", "learner"),
    _counter("syncer_takeovers", "Times that a syncer began to write."),
    _counter("checkpoints_stored", "Checkpoints of inner state stored.", "learner"),
    _counter("hardships_injected", "Faults put in on purpose.", "hardship"),
    # Now
    _gauge("learners", "Learners by state: live, left, lost or quarantined.", "state"),
    _gauge("learners_needed", "Learners that must have joined before rounds begin."),
    _gauge("quorum_size", "K: distinct learners that a merge needs."),
    _gauge("step", "Syncer step: merges of the run so far."),
    _gauge("fragment_version", "Merges that the fragment has had.", "fragment"),
    _gauge("last_merge_timestamp_seconds", "When the newest merge was recorded."),
    _gauge("rounds_open", "Rounds that are opened and not merged."),
    _gauge("rounds_below_quorum", "Open rounds that fewer than K learners have answered."),
    _gauge("oldest_round_timestamp_seconds", "When the oldest unmerged round was opened."),
    _gauge("participation_ratio", "Learners in the newest merge, of those that were live."),
    _gauge("goodput_ratio", "Time in steps whose work was merged, of all time allocated."),
    _gauge("merged_ratio", "Tokens merged, of all tokens that are settled."),
    _gauge("learner_lag_versions", "Versions that the learner has not adopted yet.", "learner"),
    _gauge("learner_heard", "1 while heartbeats of the learner are heard.", "learner"),
    _gauge("learner_waiting", "1 while the learner says that it waits.", "learner"),
    _gauge("learner_last_fact_timestamp_seconds", "When it was last told of.", "learner"),
    _gauge("learner_step_seconds", "Seconds that an inner step takes the learner.", "learner"),
    _gauge("learner_upload_seconds", "Seconds that a delta's upload took.", "learner"),
    _gauge("digests_differ", "1 when a finished learner's model is not the run's.", "learner"),
    _gauge("closed", "1 once the run is closed."),
    # Learning
    _gauge("loss", "Training loss (nats per token) as the learner last told it.", "learner"),
    _gauge("evaluation_loss", "Held-out loss (nats per token) of the merged model."),
    _gauge("evaluation_loss_best", "The least held-out loss so far."),
    _gauge("outer_gradient_norm", "Norm of the fragment's last outer gradient.", "fragment"),
    # The record
    _gauge("connected", "1 while the NATS server answers the exporter."),
    _gauge("tape_position", "The last position on the tape that the exporter folded."),
    _gauge("tape_last_fact_timestamp_seconds", "When the newest fact was recorded."),
    _gauge("tape_fence", "The fence in force: takeovers so far."),
    _gauge("tape_lag_facts", "Facts on the tape that this follower has not folded.", "component"),
    _gauge("syncer_heard", "1 while heartbeats of the syncer are heard.", "syncer"),
    _gauge("syncer_is_leader", "1 for a syncer that says it leads.", "syncer"),
    _gauge("mergers", "Mergers whose heartbeats are heard."),
    _gauge("merger_working", "Merges that the merger has under way.", "merger"),
    _gauge("inbox_pending_messages", "Messages of the inbox not yet on the tape.", "region"),
    _gauge("stream_bytes", "Bytes in the stream.", "stream"),
    _gauge("stream_messages", "Messages in the stream.", "stream"),
    _gauge("stream_bytes_max", "Bytes that the stream or its account may hold.", "stream"),
    _gauge("stream_replicas_behind", "Replicas that are offline or not current.", "stream"),
    # Time
    _times("inner_step", "An inner step, as offers tell it.", SHORT_SECONDS),
    _times("upload", "An upload of a delta, as offers tell it.", LONG_SECONDS),
    _times("quorum_wait", "From a round's opening to its quorum.", LONG_SECONDS),
    _times("window", "From a round's opening to the end of its window.", LONG_SECONDS),
    _times("merge", "Fetching, merging and storing one fragment.", LONG_SECONDS),
    _times("offer_to_merge", "From an offer's record to that of its merge.", LONG_SECONDS),
    # Build
    _gauge("build_info", "Always 1; the labels tell what runs.", "version", "python"),
)

BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}
