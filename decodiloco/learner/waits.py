"""What a learner waits for: told in its log when a wait begins and ends, and in its heartbeats.

Knows words for people; it must not know how anything is tried again.
"""

from __future__ import annotations

import time

from decodiloco.telemetry import log


class Waits:
    """The waits of one learner, by what is waited for: store, inbox, syncer."""

    def __init__(self, run: str, learner: str) -> None:
        self._log = log("learner").bind(run=run, learner=learner)
        self._since_seconds: dict[str, float] = {}

    def begin(self, what: str, why: str) -> None:
        """Something does not answer; a wait that is on already says nothing again."""
        if what not in self._since_seconds:
            self._since_seconds[what] = time.monotonic()
            self._log.warning(f"waits for the {what}", reason=why)

    def end(self, what: str) -> None:
        """It answers; nothing is said where nothing was waited for."""
        since_seconds = self._since_seconds.pop(what, None)
        if since_seconds is not None:
            seconds = round(time.monotonic() - since_seconds, 1)
            self._log.info(f"the {what} answers again", after_seconds=seconds)

    def longest(self) -> str:
        """What has been waited for the longest; empty while there is no wait."""
        return next(iter(self._since_seconds), "")

    def info(self, event: str, **told: object) -> None:
        """One line of note in the learner's log."""
        self._log.info(event, **told)
