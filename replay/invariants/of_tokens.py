"""What must hold of counters and of the fates of tokens. Pure."""

from __future__ import annotations

from decodiloco.syncer.state import State
from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from streams.envelope import Envelope
from streams.events import DeltaOffered, DeltaRefused, LearnerLeft

UNBELIEVED = ("counters", "old incarnation", "adopted")


class CountersGrow(Invariant):
    """What a learner counts fits its life: steps, tokens, and so many tokens a step at most."""

    name = "counters grow"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if isinstance(event, LearnerLeft):
            life = ledger.lives[event.learner]
            grown = event.learner_step >= life.step and event.tokens_trained >= life.tokens
            self.hold(grown, f"{event.learner} leaves at step {event.learner_step}", position)
        if not isinstance(event, DeltaOffered):
            return
        life = ledger.lives[event.learner]
        lived = event.learner_step - life.joined_step
        trained = event.tokens_trained - life.joined_tokens
        told = f"{event.learner}: {event.inner_steps} steps, {event.tokens} tokens"
        self.hold(1 <= event.inner_steps <= lived, f"{told}, in a life of {lived}", position)
        self.hold(1 <= event.tokens <= trained, f"{told}, of {trained} trained", position)
        most = ledger.opening.run.merge.tokens_per_step_max
        self.hold(event.tokens <= most * event.inner_steps, told, position)


class RefusalsTellWhy(Invariant):
    """A refused offer says why, and comes from a learner that has joined."""

    name = "refusals tell why"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, DeltaRefused):
            self.hold(bool(event.reason), "a refusal without a reason", envelope.position)
            known = event.learner in ledger.lives
            self.hold(known, f"{event.learner} never joined", envelope.position)


class FatesAddUp(Invariant):
    """Of each learner and fragment: the tokens of all fates together are those trained."""

    name = "fates add up"

    def look(self, ledger: Ledger, state: State) -> None:
        """The state's accounts against the ledger."""
        for name, learner in state.learners.items():
            trained = ledger.lives[name].tokens
            told = f"{name}: {learner.tokens_trained} tokens in the state, {trained} told"
            self.hold(learner.tokens_trained == trained, told, state.position)
            for fragment in range(len(state.fragments)):
                fates = learner.fates(fragment)
                adds = sum(fates.values()) == trained and min(fates.values()) >= 0
                told = "" if adds else f"{name}, fragment {fragment}: {fates} of {trained}"
                self.hold(adds, told, state.position)
                merged, found = ledger.merged_tokens.get((name, fragment), 0), fates["merged"]
                same = found == merged
                told = "" if same else f"{name}, fragment {fragment}: {found}, {merged} were merged"
                self.hold(same, told, state.position)
