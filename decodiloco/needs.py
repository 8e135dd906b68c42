"""What measured times mean for a run: the overlap it needs and the work that overwriting loses.

Pure arithmetic on seconds; it must not know how they were measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from decodiloco.config import Run
from decodiloco.fragments.schedule import pace_steps

LOST_SHARE_FINE = 0.05  # below, a remedy is not worth telling


@dataclass(frozen=True, slots=True)
class Needs:
    """The overlap that leaves one step of slack, what the run has, and the share lost.

    `inner_steps_needed`: the least H with which that overlap fits, and with which each fragment is
    across before its next turn.

    `carries`: the run keeps what is not merged, so that nothing is lost to overwrite.
    """

    overlap_needed: int
    overlap_max: int
    overlap_set: int | None
    lost_share: float
    carries: bool = False
    inner_steps_needed: int = 1

    def lines(self) -> list[str]:
        """For people, with what to do when it does not fit."""
        lines = [
            f"overlap needed: {self.overlap_needed} rounds (at most {self.overlap_max} fit); "
            f"inner_steps (H) needed: {self.inner_steps_needed}",
            self._lost(),
        ]
        if self.overlap_needed > self.overlap_max:
            lines.append(
                "the network is too slow for this pace: rounds will open more slowly; "
                "raise inner_steps (H)"
            )
        elif self.overlap_set is not None and self.overlap_set < self.overlap_needed:
            lines.append(
                f"window.overlap is {self.overlap_set}: too few; set it to auto or to "
                f"{self.overlap_needed}"
            )
        return lines

    def _lost(self) -> str:
        if self.carries:
            return "work lost to overwrite: none, as adoption.carry is set"
        line = f"work lost to overwrite: about {100 * self.lost_share:.0f} %"
        if self.lost_share < LOST_SHARE_FINE:
            return line
        return f"{line}; adoption.carry = true keeps it, a larger inner_steps (H) makes it less"

    def plain(self) -> dict[str, Any]:
        """For a machine."""
        return {
            "overlap_needed": self.overlap_needed,
            "inner_steps_needed": self.inner_steps_needed,
            "lost_share": self.lost_share,
        }


def needs_of(run: Run, upload_seconds: float, download_seconds: float) -> Needs:
    """What a run needs of a network with these times for one fragment's delta and fragment.

    slack = overlap * pace * step - (quorum + merge + fetch) >= one step  (paper Eq. 3), with
    quorum = one step (the next boundary) + upload. The share that overwriting loses is the
    time from the copy to the adoption over H steps.
    """
    step = run.window.step_seconds
    pace_seconds = pace_steps(run.inner_steps, run.fragments) * step
    quorum_seconds = step + upload_seconds
    overlap = math.ceil((step + quorum_seconds + download_seconds) / pace_seconds)
    # An offer waits half a step for the others, a merged fragment half a step for its boundary.
    lost = (upload_seconds + step + download_seconds) / (run.inner_steps * step)
    fits = max(1, run.fragments - 1)
    whole_seconds = step + quorum_seconds + download_seconds
    across_seconds = max(upload_seconds, download_seconds, whole_seconds / fits)
    chosen = run.window.overlap
    return Needs(
        overlap_needed=max(1, overlap),
        overlap_max=fits,
        overlap_set=None if chosen == "auto" else chosen,
        lost_share=0.0 if run.adoption.carry else min(1.0, lost),
        carries=run.adoption.carry,
        inner_steps_needed=max(1, math.ceil(run.fragments * across_seconds / step)),
    )
