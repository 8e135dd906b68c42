"""When a standby may take over, and when an older syncer stands down. There is no lease.

The tape itself decides: of several takeovers at one position one is stored. This file only
listens to heartbeats, which are off the record, and says when it is worth trying.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from decodiloco.config import Times
from decodiloco.syncer.state import State
from decodiloco.times import echo_seconds
from streams.pulse import Beat, Pulse

Key = TypeVar("Key")

BACKOFF_DOUBLINGS_MAX = 3
HEARD_MAX = 10_000  # anybody may beat under any name: the longest silent are forgotten
FENCES_MAX = 64
CALM_TAKEOVERS = 15  # after so long without a failure we are as patient as at first


class Heartbeats:
    """Who was heard when, on this process's own clock.

    Our own beats come back through the server: only while they do, silence of others counts.
    """

    def __init__(self, syncer: str, times: Times, clock: Callable[[], float]) -> None:
        self._syncer = syncer
        self._times = times
        self._clock = clock
        self._heard: dict[tuple[str, str], float] = {}
        self._leading: dict[int, float] = {}  # when somebody was heard to lead under a fence
        self._began = clock()
        self._own_heard = 0.0
        self._deaf_until = clock()

    async def listen(self, pulse: Pulse) -> None:
        """Takes in heartbeats until cancelled."""
        async for beat in pulse.listen():
            self.take(beat)

    def take(self, beat: Beat) -> None:
        """One heartbeat."""
        now = self._clock()
        if beat.role == "syncer" and beat.speaker == self._syncer:
            if now - self._own_heard > echo_seconds(self._times):
                self._deaf_until = now  # we heard nothing for a while: begin to count anew
            self._own_heard = now
        self.heard(beat.role, beat.speaker)
        fence = beat.values.get("fence")
        if beat.role == "syncer" and beat.values.get("leading") == 1 and isinstance(fence, int):
            _note(self._leading, fence, now, FENCES_MAX)

    def heard(self, role: str, speaker: str) -> None:
        """A sign of life: a heartbeat, or a word in an inbox."""
        _note(self._heard, (role, speaker), self._clock(), HEARD_MAX)

    def connected(self) -> bool:
        """Whether our own heartbeats come back."""
        return self._clock() - self._own_heard <= echo_seconds(self._times)

    def silent_seconds(self, role: str, speaker: str, since: float) -> float:
        """For how long nothing was heard of somebody; never counted before `since`."""
        if not self.connected():
            return 0.0
        heard = self._heard.get((role, speaker), since)
        return self._clock() - max(heard, since, self._deaf_until)

    def anyone(self, role: str, seconds: float) -> bool:
        """Whether somebody of this role was heard within so many seconds."""
        now = self._clock()
        return any(now - heard <= seconds for (of, _), heard in self._heard.items() if of == role)

    def names(self, role: str, seconds: float) -> set[str]:
        """Who of this role was heard within so many seconds."""
        since = self._clock() - seconds
        return {name for (of, name), at in self._heard.items() if of == role and at >= since}

    def listened_seconds(self) -> float:
        """For how long anybody who beats would have been heard."""
        return self._clock() - self._deaf_until

    def leader_silent_seconds(self, state: State) -> float:
        """For how long the syncer whose fence is in force, or a newer one, was not heard.

        A newer one leads when the tape has not reached us yet.
        """
        if not self.connected():
            return 0.0
        heard = [moment for fence, moment in self._leading.items() if fence >= state.fence]
        return self._clock() - max(self._began, self._deaf_until, *heard)


def _note(moments: dict[Key, float], key: Key, now: float, most: int) -> None:
    """Keeps when something was heard last, of so many things the newest."""
    moments.pop(key, None)
    moments[key] = now
    if len(moments) > most:
        del moments[next(iter(moments))]


class Patience:
    """How long to listen before a takeover: longer for a while after one that was for nothing."""

    def __init__(self, times: Times, clock: Callable[[], float]) -> None:
        self._times = times
        self._clock = clock
        self._failures = 0
        self._failed_at = clock()

    def seconds(self, state: State) -> float:
        """0 on a tape that no syncer has written yet."""
        if state.fence == 0:
            return 0.0
        calm_seconds = CALM_TAKEOVERS * self._times.takeover_seconds
        if self._clock() - self._failed_at > calm_seconds:
            self._failures = 0
        return self._times.takeover_seconds * float(1 << self._failures)

    def failed(self) -> None:
        """A takeover was lost, or we had to stand down."""
        self._failures = min(self._failures + 1, BACKOFF_DOUBLINGS_MAX)
        self._failed_at = self._clock()


async def beat_on(pulse: Pulse, beat: Callable[[], Beat], every_seconds: float) -> None:
    """Sends heartbeats until cancelled."""
    while True:
        await pulse.beat(beat())
        await asyncio.sleep(every_seconds)
