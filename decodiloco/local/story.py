"""The story of a run as people look at it: folded from the tape and from heartbeats.

Pure: the moment at which something was heard is handed in. It decides nothing; it must not
know processes, servers or the syncer's own state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from decodiloco.times import FADED_SECONDS
from streams.envelope import Envelope
from streams.events import (
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
    RoundOpened,
    RunClosed,
    RunClosing,
    RunOpened,
    SyncerTookOver,
    WindowClosed,
)
from streams.pulse import Beat


@dataclass(slots=True)
class Lane:
    """One learner as seen from outside."""

    id: str
    incarnation: int
    state: str = "training"
    lives: int = 1
    learner_step: int = 0
    tokens_trained: int = 0
    step_seconds: float = 0.0
    loss: float | None = None
    heard_seconds: float | None = None
    waiting: str = ""
    digest: bytes = b""

    @property
    def tokens_per_second(self) -> float:
        """Tokens of one step over its duration; 0 before it has reported a step."""
        if not self.learner_step or not self.step_seconds:
            return 0.0
        return self.tokens_trained / self.learner_step / self.step_seconds


@dataclass(slots=True)
class Round:
    """A round that is open or merging, and who has answered."""

    fragment: int
    closed: bool = False
    answered: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outage:
    """The leading syncer was killed: until when nobody led, and who stepped on meanwhile.

    `first` and `last` hold each learner's step at its first and last heartbeat within, `beats`
    how many there were.
    """

    syncer: str
    began_seconds: float
    seconds: float | None = None
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)

    def hear(self, learner: str, step: int) -> None:
        """Takes in a learner's heartbeat, if nobody leads yet."""
        if self.seconds is None:
            self.first.setdefault(learner, step)
            self.last[learner] = step
            self.beats[learner] = self.beats.get(learner, 0) + 1

    def stepped(self) -> dict[str, int]:
        """Inner steps made in the outage by each learner that was heard in it at least twice."""
        return {
            id_: self.last[id_] - self.first[id_]
            for id_ in sorted(self.first)
            if self.beats[id_] >= 2
        }


@dataclass(slots=True)
class Story:
    """All that the demo's view, its kills and its summary are made of."""

    position: int = 0
    run: str = ""
    step: int = 0
    versions: dict[int, int] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    leader: str | None = None
    fence: int = 0
    refused: int = 0
    evaluations: list[EvaluationReported] = field(default_factory=list)
    struck: list[HardshipInjected] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    merge_gap_seconds: float = 0.0
    closing: bool = False
    closed: RunClosed | None = None
    faded_seconds: float = FADED_SECONDS
    _merged_at: float | None = None

    def hear(self, envelope: Envelope, now_seconds: float) -> str | None:
        """Folds one fact; gives a line for people if it is one of note."""
        assert envelope.position == self.position + 1
        self.position = envelope.position
        match envelope.event:
            case RunOpened() as opened:
                self.run = opened.run
                return f"run {opened.run} is opened"
            case LearnerJoined() | LearnerLeft() | LearnerLost() as coming:
                return self._hear_coming(envelope.position, coming)
            case DeltaOffered() as offer:
                self._hear_offer(offer)
            case DeltaRefused() as refusal:
                self.refused += 1
                return (
                    f"offer of learner {refusal.learner} for fragment {refusal.fragment} "
                    f"is refused: {refusal.reason}"
                )
            case MessageRefused() as refusal:
                self.refused += refusal.count
                return f"{refusal.count} messages refused from {refusal.source}: {refusal.reason}"
            case RoundOpened() | WindowClosed() | MergeAbandoned() | FragmentMerged() as fact:
                return self._hear_round(fact, envelope.time_seconds)
            case EvaluationReported() as report:
                self.evaluations.append(report)
                return f"validation loss {report.loss:.4f} at step {report.step}"
            case SyncerTookOver() as takeover:
                return self._hear_takeover(takeover, now_seconds)
            case HardshipInjected() as hardship:
                self.struck.append(hardship)
                return f"now comes a hardship: {hardship.hardship} of {hardship.target}"
            case RunClosing():
                self.closing = True
                return "the run is closing: one last round of each fragment"
            case RunClosed() as closed:
                self.closed = closed
                return f"the run is closed after {closed.step} merges, {closed.tokens:,} tokens"
            case _:
                return None
        return None

    def feel(self, beat: Beat, now_seconds: float) -> None:
        """Takes in a heartbeat; only those of learners tell something that the tape does not."""
        lane = self.lanes.get(beat.speaker)
        if beat.role != "learner" or lane is None:
            return
        step = beat.count("learner_step")
        lane.heard_seconds = now_seconds
        lane.learner_step = max(lane.learner_step, step)
        lane.tokens_trained = max(lane.tokens_trained, beat.count("tokens_trained"))
        lane.step_seconds = beat.seconds("step_seconds") or lane.step_seconds
        lane.waiting = beat.text("waiting")
        loss = beat.number("loss")
        if loss is not None and step:
            lane.loss = loss
        for outage in self.outages:
            outage.hear(lane.id, step)

    def strike(self, target: str, now_seconds: float) -> None:
        """A process was killed at this moment."""
        if target == self.leader:
            self.leader = None
            self.outages.append(Outage(target, now_seconds))
        elif target in self.lanes:
            self.lanes[target].state = "killed"

    @property
    def tokens(self) -> int:
        return sum(self.lanes[id_].tokens_trained for id_ in sorted(self.lanes))

    @property
    def tokens_per_second(self) -> float:
        """What the living learners do together, as far as they were heard."""
        living = [self.lanes[id_] for id_ in self.living]
        return sum(lane.tokens_per_second for lane in living if lane.heard_seconds is not None)

    @property
    def living(self) -> tuple[str, ...]:
        """Learners that have joined and not gone, by id."""
        return tuple(id_ for id_ in sorted(self.lanes) if self.lanes[id_].state == "training")

    @property
    def waits(self) -> str:
        """Who waits for what, in words; empty when nobody does."""
        waiting = [lane for id_ in self.living if (lane := self.lanes[id_]).waiting]
        return ", ".join(f"{lane.id} waits for the {lane.waiting}" for lane in waiting)

    def finished(self) -> bool:
        """Whether the run is closed, nobody is left in it and its last evaluation is there.

        Who was dead when the run was closed is not waited for: nobody is there to hear it.
        """
        if self.closed is None or self.living:
            return False
        return any(report.versions == self.closed.versions for report in self.evaluations)

    def digests_equal(self) -> bool | None:
        """Whether every learner that finished holds the model that the tape closed with.

        None when nobody finished.
        """
        finished = [lane for lane in self.lanes.values() if lane.state == "finished"]
        if self.closed is None or not finished:
            return None
        return all(lane.digest == self.closed.digest for lane in finished)

    def _hear_coming(
        self, position: int, coming: LearnerJoined | LearnerLeft | LearnerLost
    ) -> str | None:
        if isinstance(coming, LearnerJoined):
            before = self.lanes.get(coming.learner)
            lane = Lane(coming.learner, position, lives=before.lives + 1 if before else 1)
            lane.learner_step = coming.learner_step
            lane.tokens_trained = coming.tokens_trained
            self.lanes[coming.learner] = lane
            again = f" again (life {lane.lives})" if before else ""
            return f"learner {coming.learner} joins{again} at its step {coming.learner_step}"
        gone = self.lanes.get(coming.learner)
        if gone is None or gone.incarnation != coming.incarnation:
            return None
        is_silent = isinstance(coming, LearnerLost) and coming.reason == "silent"
        gone.state = "lost" if is_silent else coming.reason
        if isinstance(coming, LearnerLost) and coming.reason == "quarantined":
            told = f"is QUARANTINED: {coming.why}"
        elif isinstance(coming, LearnerLost):
            told = f"is lost: silent for {coming.silent_seconds:.1f} s"
        else:
            gone.learner_step = max(gone.learner_step, coming.learner_step)
            gone.tokens_trained = max(gone.tokens_trained, coming.tokens_trained)
            gone.digest = coming.digest
            told = f"leaves ({coming.reason}) at its step {coming.learner_step}"
        if not self.living:
            self._merged_at = None  # a whole stop is no gap between merges
        return f"learner {coming.learner} {told}"

    def _hear_offer(self, offer: DeltaOffered) -> None:
        lane = self.lanes.get(offer.learner)
        if lane is not None:
            lane.learner_step = max(lane.learner_step, offer.learner_step)
            lane.tokens_trained = max(lane.tokens_trained, offer.tokens_trained)
            lane.step_seconds, lane.loss = offer.step_seconds, offer.loss
        around = self.rounds.get(offer.round)
        if around is not None and offer.learner not in around.answered:
            around.answered.append(offer.learner)

    def _hear_round(
        self,
        fact: RoundOpened | WindowClosed | MergeAbandoned | FragmentMerged,
        time_seconds: float,
    ) -> str | None:
        if isinstance(fact, RoundOpened):
            self.rounds[fact.round] = Round(fact.fragment)
            self.versions.setdefault(fact.fragment, 0)
            return None
        around = self.rounds.get(fact.round)
        if isinstance(fact, WindowClosed | MergeAbandoned):
            if around is not None:
                around.closed = isinstance(fact, WindowClosed)
            if isinstance(fact, WindowClosed):
                return None
            return f"the merge of round {fact.round} is abandoned: too few deltas passed"
        self.step = fact.step
        self.versions[fact.fragment] = fact.version
        self.rounds.pop(fact.round, None)
        if self._merged_at is not None:
            self.merge_gap_seconds = max(self.merge_gap_seconds, time_seconds - self._merged_at)
        self._merged_at = time_seconds
        if fact.left_out:
            return f"{len(fact.left_out)} deltas left out of round {fact.round}"
        return None

    def _hear_takeover(self, takeover: SyncerTookOver, now_seconds: float) -> str:
        self.leader, self.fence = takeover.syncer, takeover.fence
        told = f"{takeover.syncer} leads (fence {takeover.fence})"
        for outage in self.outages:
            if outage.seconds is None:
                outage.seconds = now_seconds - outage.began_seconds
                told += f", {outage.seconds:.1f} s after {outage.syncer} was killed"
        return told
