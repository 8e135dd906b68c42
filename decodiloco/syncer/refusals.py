"""Letters that could not be read, counted, and recorded at most once a subject and ten seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from decodiloco.syncer import drafting
from decodiloco.syncer.admission import Unreadable
from decodiloco.syncer.compose import Draft
from streams.inbox import Letter

EVERY_SECONDS = 10.0
SUBJECTS_MAX = 1000


@dataclass(slots=True)
class _Count:
    letter: Letter
    reason: str
    count: int = 0
    recorded: float = float("-inf")


class Refusals:
    """Counts a subject. Beyond SUBJECTS_MAX subjects the rest are counted together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def take(self, letter: Letter, verdict: Unreadable) -> None:
        """One more letter that is no word. Taking the same letter again does not count it twice."""
        subject = verdict.subject
        if subject not in self._counts and len(self._counts) >= SUBJECTS_MAX:
            subject = "others"
        count = self._counts.setdefault(subject, _Count(letter, verdict.reason))
        if count.count and letter.source.sequence <= count.letter.source.sequence:
            return
        count.letter, count.reason = letter, verdict.reason
        count.count += 1

    def due(self) -> list[Draft]:
        """Drafts for the subjects whose turn it is; they begin to count from zero again."""
        now = self._clock()
        drafts = []
        for subject in sorted(self._counts):
            count = self._counts[subject]
            if count.count and now - count.recorded >= EVERY_SECONDS:
                drafts.append(
                    drafting.from_refusals(count.letter, count.reason, count.count, subject)
                )
                count.count, count.recorded = 0, now
        return drafts
