"""How far a shadow is behind the tape's end, in facts and in seconds of its own clock.

Told the end as it was seen, and asked how old the first of it is that was not yet checked. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SAMPLES_MAX = 3600
"""Sightings of the end that are kept; of a shadow further behind, later ones are passed over."""


@dataclass(slots=True)
class Lag:
    """Sightings of the tape's end: positions that grow, and the moments they were seen at."""

    end: int = 0
    _seen: deque[tuple[int, float]] = field(default_factory=deque)

    def saw(self, end: int, now_seconds: float) -> None:
        """The tape ends here at this moment."""
        if end > self.end:
            self.end = end
            if len(self._seen) < SAMPLES_MAX:
                self._seen.append((end, now_seconds))

    def behind(self, position: int, now_seconds: float) -> tuple[int, float]:
        """Facts beyond this position, and for how long the first of them has been seen there."""
        while self._seen and self._seen[0][0] <= position:
            self._seen.popleft()
        if position >= self.end:
            return 0, 0.0
        since_seconds = self._seen[0][1] if self._seen else now_seconds
        return self.end - position, max(0.0, now_seconds - since_seconds)
