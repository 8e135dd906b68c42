"""Letters that could not be read, counted, and recorded at most once a subject and ten seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from decodiloco.syncer import drafting
from decodiloco.syncer.admission import Unreadable
from decodiloco.syncer.compose import Draft
from decodiloco.times import REFUSALS_SECONDS
from streams.inbox import Letter

SUBJECTS_MAX = 1000


@dataclass(slots=True)
class _Count:
    letter: Letter
    reason: str
    count: int = 1
    recorded: float = float("-inf")


class Refusals:
    """Counts a subject. Beyond SUBJECTS_MAX subjects the rest of an inbox is counted together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def take(self, letter: Letter, verdict: Unreadable) -> None:
        """One more letter that is no word. Taking the same letter again does not count it twice."""
        subject = verdict.subject
        if subject not in self._counts and len(self._counts) >= SUBJECTS_MAX:
            subject = ".".join([*subject.split(".")[:3], "*"])
        known = self._counts.get(subject)
        if known is None:
            self._counts[subject] = _Count(letter, verdict.reason)
        elif not _is_behind(letter, known.letter):
            known.letter, known.reason = letter, verdict.reason
            known.count += 1

    def due(self, limit: int) -> list[Draft]:
        """Drafts for subjects whose turn it is, at most `limit`; they count from zero again."""
        now = self._clock()
        drafts: list[Draft] = []
        for subject in sorted(self._counts):
            count = self._counts[subject]
            if len(drafts) == limit:
                break
            if count.count and now - count.recorded >= REFUSALS_SECONDS:
                drafts.append(
                    drafting.from_refusals(count.letter, count.reason, count.count, subject)
                )
                count.count, count.recorded = 0, now
        return drafts


def _is_behind(letter: Letter, other: Letter) -> bool:
    here, there = letter.source, other.source
    return here.life == there.life and here.sequence <= there.sequence
