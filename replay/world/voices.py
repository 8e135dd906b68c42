"""Those who speak to a run and train nothing: operator, evaluator, and whoever injects hardships.

They stand right beside an inbox, so that their words always arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.codec import encode_event
from streams.events import EvaluationReported, HardshipInjected, RunClosing

if TYPE_CHECKING:
    from replay.world.world import World

EVALUATION_SECONDS = 17.0
WORDS_TWICE = 3  # every so many evaluations one is said twice


class Voices:
    """All of them, in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._inbox = world.inboxes[world.case.opening.run.regions[-1]]
        self._said = {"operator": 0, "evaluator": 0, "injector": 0}

    def begin(self) -> None:
        """The evaluator looks at the merged model from time to time, until the run is closed."""
        self._world.heap.later(EVALUATION_SECONDS, self._evaluate)

    def ask_to_close(self) -> None:
        """The operator wants the run to end."""
        said = self._next("operator")
        self._put(RunClosing(speaker="operator", life=1, said=said, reason="asked"))

    def announce(self, kind: str, name: str) -> None:
        """A hardship is about to strike."""
        self._put(
            HardshipInjected(
                speaker="injector",
                life=1,
                said=self._next("injector"),
                hardship=kind,
                target=name,
                seed=self._world.case.seed,
            )
        )

    def _evaluate(self) -> None:
        ledger = self._world.invariants.ledger
        if ledger.closed is not None:
            return
        word = EvaluationReported(
            speaker="evaluator",
            life=1,
            said=self._next("evaluator"),
            step=ledger.step,
            versions=tuple(ledger.versions),
            tokens=ledger.tokens,
            loss=1.0,
            dataset_digest=bytes(32),
        )
        for _ in range(2 if word.said % WORDS_TWICE == 0 else 1):
            self._put(word)
        self._world.heap.later(EVALUATION_SECONDS, self._evaluate)

    def _next(self, speaker: str) -> int:
        self._said[speaker] += 1
        return self._said[speaker]

    def _put(self, word: EvaluationReported | HardshipInjected | RunClosing) -> None:
        self._inbox.put(word.speaker, word.kind, encode_event(word))
