"""A run counted fact by fact: what its metrics need beside the syncer's own state.

Pure. Counters are of the run, not of this process: whoever folds the same tape counts the same,
so that a restart of the exporter resets nothing. Names stand in families.py.
"""

from __future__ import annotations

import re

from decodiloco.metrics.families import BY_NAME
from decodiloco.metrics.tally import Tally
from decodiloco.opening import Opening
from decodiloco.status_view import Followed, followed
from decodiloco.syncer.state import State
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    FragmentMerged,
    HardshipInjected,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MergeAbandoned,
    MessageRefused,
    RunClosed,
    SyncerTookOver,
    WindowClosed,
    learner_of,
)

REASONS_MAX = 64  # of one metric: a stranger may make up as many as he likes; the rest is one
_FIRST_WORDS = re.compile(r"[a-zA-Z]+(?: [a-zA-Z]+){0,4}")


class Counted:
    """A run folded and counted. Moments are Unix time, as the record has them."""

    def __init__(self, opening: Opening) -> None:
        self.told: Followed = followed(opening)
        self.tally = Tally()
        self.last_fact_seconds: dict[str, float] = {}
        self.last_merge_seconds: float | None = None
        self.gradient_norms: dict[int, float] = {}
        self.participation: float | None = None
        self.loss_newest: float | None = None
        self.loss_best: float | None = None
        self._offered_seconds: dict[int, float] = {}
        self._finished: dict[str, bytes] = {}
        self._closed: RunClosed | None = None
        self._reasons: dict[str, set[str]] = {}
        for name in ("syncer_takeovers", "merges_abandoned"):
            self.tally.add(name, by=0)

    @property
    def state(self) -> State:
        """The syncer's state as far as it is folded."""
        return self.told.state

    @property
    def differing(self) -> dict[str, bool]:
        """For each learner that finished: whether its model is not the one the run closed with."""
        if self._closed is None:
            return {}
        return {name: digest != self._closed.digest for name, digest in self._finished.items()}

    def hear(self, envelope: Envelope) -> None:
        """Folds and counts one fact."""
        live = len(self.told.state.live)
        self.told.hear(envelope)
        event, now = envelope.event, envelope.time_seconds
        self.tally.add("facts", event.kind)
        learner = learner_of(event)
        if learner is not None:
            self.last_fact_seconds[learner] = now
        match event:
            case DeltaOffered():
                self._offered(event, envelope)
            case FragmentMerged():
                self._merged(event, now, live)
            case WindowClosed():
                self.tally.add("windows_closed", self._reason("windows_closed", event.reason))
                self._observe("quorum_wait_seconds", event.quorum_seconds)
                self._observe("window_seconds", event.waited_seconds)
            case EvaluationReported(loss=loss):
                self.loss_newest = loss
                self.loss_best = loss if self.loss_best is None else min(loss, self.loss_best)
            case LearnerLeft(reason="finished", digest=digest) if digest:
                self._finished[event.learner] = digest
            case RunClosed():
                self._closed = event
            case _:
                self._count(event)

    def _count(self, event: object) -> None:
        match event:
            case DeltaRefused():
                reason = self._reason("offers_refused", event.reason)
                self.tally.add("offers_refused", event.learner, reason)
            case MessageRefused():
                reason = self._reason("messages_refused", event.reason)
                self.tally.add("messages_refused", reason, by=event.count)
            case MergeAbandoned():
                self.tally.add("merges_abandoned")
                self._left_out(event)
            case LearnerLost(learner=learner, reason=reason):
                self.tally.add("learners_lost", learner, reason)
            case LearnerJoined(learner=learner):
                self.tally.add("learners_joined", learner)
            case SyncerTookOver():
                self.tally.add("syncer_takeovers")
            case CheckpointStored(learner=learner):
                self.tally.add("checkpoints_stored", learner)
            case HardshipInjected(hardship=hardship):
                reason = self._reason("hardships_injected", hardship)
                self.tally.add("hardships_injected", reason)
            case _:
                pass

    def _offered(self, offer: DeltaOffered, envelope: Envelope) -> None:
        self.tally.add("offers", offer.learner)
        self._observe("inner_step_seconds", offer.step_seconds)
        self._observe("upload_seconds", offer.upload_seconds)
        self._offered_seconds[envelope.position] = envelope.time_seconds

    def _merged(self, merge: FragmentMerged, now_seconds: float, live: int) -> None:
        self.tally.add("merges", str(merge.fragment))
        self._observe("merge_seconds", merge.merge_seconds)
        for position in merge.contributions:
            offered_seconds = self._offered_seconds.get(position)
            if offered_seconds is not None:
                self._observe("offer_to_merge_seconds", max(0.0, now_seconds - offered_seconds))
        self._left_out(merge)
        unsettled = self.told.state.offers
        self._offered_seconds = {
            position: seconds
            for position, seconds in self._offered_seconds.items()
            if position in unsettled
        }
        self.gradient_norms[merge.fragment] = merge.outer_gradient_norm
        self.last_merge_seconds = now_seconds
        self.participation = min(1.0, len(merge.contributions) / max(1, live))

    def _left_out(self, merge: FragmentMerged | MergeAbandoned) -> None:
        for one in merge.left_out:
            self.tally.add("offers_left_out", self._reason("offers_left_out", one.reason))

    def _observe(self, name: str, value: float) -> None:
        self.tally.observe(name, value, BY_NAME[name].bounds)

    def _reason(self, name: str, text: str) -> str:
        """A reason without its particulars, as a label of this metric that has few values."""
        words, known = reason_class(text), self._reasons.setdefault(name, set())
        if words not in known and len(known) >= REASONS_MAX:
            return "other"
        known.add(words)
        return words


def reason_class(reason: str) -> str:
    """The first words of a reason, up to a number or a name."""
    found = _FIRST_WORDS.match(reason.replace("_", " ").replace("-", " "))
    return found.group(0).lower() if found else "other"
