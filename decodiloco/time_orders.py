"""Which wait must not be longer than which other: checked when a config is read. Pure.

What only wastes work when it is out of order is no fault of a config: `decodiloco doctor` says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from decodiloco import times as of_run
from streams import times as of_record
from streams.times import waits_in

if TYPE_CHECKING:
    from decodiloco.config import Run, Times


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an order: what it is called, and its seconds."""

    name: str
    seconds: Callable[[Times], float]


@dataclass(frozen=True, slots=True)
class Order:
    """`less` must not be longer than `more`."""

    less: Side
    more: Side
    why: str

    def broken(self, times: Times) -> str | None:
        """What is wrong, with both values and the rule; None where the order holds."""
        less, more = self.less.seconds(times), self.more.seconds(times)
        if less <= more:
            return None
        return (
            f"{self.more.name} must be at least {self.less.name}: {more:g} s is less than "
            f"{less:g} s; {self.why}"
        )


WAITS = {**waits_in(vars(of_record)), **waits_in(vars(of_run))}


def _setting(name: str, factor: int = 1) -> Side:
    """A setting of `[run.times]`."""
    told = name if factor == 1 else f"{factor} x {name}"
    return Side(told, lambda times: factor * float(getattr(times, name)))


def _fixed(*names: str, factor: int = 1) -> Side:
    """The sum of fixed waits."""
    told = " + ".join(names) if factor == 1 else f"{factor} x {names[0]}"
    return Side(told, lambda _: factor * sum(WAITS[name] for name in names))


SETTINGS = (
    Order(
        _setting("heartbeat_seconds", factor=2),
        _setting("takeover_seconds"),
        "one heartbeat that is late must not end a reign",
    ),
    Order(
        _setting("takeover_seconds"),
        _setting("lost_seconds"),
        "while nobody leads, no learner's silence may count against it",
    ),
    Order(
        _setting("lost_seconds"),
        _setting("orphan_seconds_max"),
        "a learner must not give up before others may give it up",
    ),
)
"""Between settings: a config that breaks one of them is refused."""

FIXED = (
    Order(
        _fixed("PING_SECONDS", factor=2),
        _fixed("HEALTHY_SECONDS"),
        "a healthy link has time for two pings",
    ),
    Order(
        _fixed("HEALTHY_SECONDS"),
        _fixed("PONG_SECONDS_MAX"),
        "a link is called unhealthy before it is given up",
    ),
    Order(
        _fixed("HEARTBEAT_SECONDS", factor=3),
        _fixed("SILENCE_SECONDS_MAX"),
        "a consumer may miss two of the server's signs",
    ),
    Order(
        _fixed("EXPIRES_SECONDS"),
        _fixed("INACTIVE_SECONDS"),
        "the server keeps a consumer as long as a request on it may be open",
    ),
    Order(
        _fixed("ASK_AGAIN_SECONDS"),
        _fixed("API_SECONDS"),
        "a read is asked again before it is given up",
    ),
    Order(
        _fixed("SAY_ATTEMPT_SECONDS"),
        _fixed("SAY_SECONDS"),
        "a word has more than one attempt",
    ),
    Order(
        _fixed("SAY_SECONDS"),
        _fixed("INBOX_TWIN_SECONDS"),
        "the server knows a word again in all of its attempts",
    ),
    Order(
        _fixed("APPEND_SECONDS"),
        _fixed("APPEND_PATIENCE_SECONDS"),
        "an unknown append is asked about",
    ),
    Order(
        _fixed("APPEND_PATIENCE_SECONDS"),
        _fixed("TAPE_PATIENCE_SECONDS"),
        "a leader is the last to give the tape up",
    ),
    Order(
        _fixed("SYNCER_TELL_SECONDS"),
        _fixed("RESEND_SECONDS"),
        "a wait is told before anything is done about it",
    ),
    Order(
        _fixed("LAST_WORD_SECONDS"),
        _fixed("LEAVE_SECONDS_MAX"),
        "a farewell has time for its last word",
    ),
    Order(
        _fixed("LEAVE_SECONDS_MAX", "NOTICE_MARGIN_SECONDS"),
        _fixed("NOTICE_END_SECONDS"),
        "a learner that was told to stop has the time of a whole farewell",
    ),
    Order(
        _fixed("LIFE_CLOSE_SECONDS", "NETWORK_STOP_SECONDS"),
        _fixed("NOTICE_MARGIN_SECONDS"),
        "connections and their thread are closed before it ends itself",
    ),
    Order(
        _fixed("NOTICE_END_SECONDS"),
        _fixed("TERM_SECONDS"),
        "a learner that was told to stop ends by itself before it is killed",
    ),
    Order(
        _fixed("FAREWELL_TAPE_SECONDS_MAX"),
        _fixed("LEAVE_SECONDS_MAX"),
        "a farewell has time to be seen on the tape",
    ),
    Order(
        _fixed("ARCHIVE_FAREWELL_SECONDS_MAX"),
        _fixed("TERM_SECONDS"),
        "an archive that was told to end stores what it has before it is killed",
    ),
    Order(
        _fixed("S3_CONNECT_SECONDS_MAX"),
        _fixed("S3_SILENCE_SECONDS_MAX"),
        "to connect is quicker than to answer",
    ),
    Order(
        _fixed("S3_SILENCE_SECONDS_MAX"),
        _fixed("S3_LIMIT_SECONDS"),
        "a silent attempt is followed by another one",
    ),
    Order(
        _fixed("FAREWELL_SECONDS_MAX"),
        _fixed("STILL_SECONDS_MAX"),
        "a closed run is given up sooner than one that trains",
    ),
    Order(
        Side("echo_seconds", of_run.echo_seconds),
        _setting("takeover_seconds"),
        "a standby that is deaf itself takes nothing over",
    ),
    Order(
        _setting("heartbeat_seconds"),
        Side("echo_seconds", of_run.echo_seconds),
        "our own heartbeats come back in time to count",
    ),
    Order(
        _setting("takeover_seconds"),
        Side("close_seconds", of_run.close_seconds),
        "a run can be closed while a standby takes over",
    ),
)
"""Between fixed and derived waits: they hold for every config, and a test says so."""


def out_of_order(times: Times) -> list[str]:
    """What a config sets in a wrong order, one sentence each."""
    return [told for order in SETTINGS if (told := order.broken(times)) is not None]


def advice(run: Run) -> list[str]:
    """What keeps its order and wastes work all the same; sentences for the operator."""
    times, window = run.times, run.window
    told = []
    relink_seconds = (
        of_record.PONG_SECONDS_MAX + of_record.RECONNECT_PAUSE_SECONDS_MAX + of_record.OPEN_SECONDS
    )
    if times.lost_seconds < relink_seconds:
        told.append(
            f"lost_seconds = {times.lost_seconds:g}: a learner whose link breaks is silent for up "
            f"to {relink_seconds:g} s, and is declared lost meanwhile"
        )
    backoff_seconds = 8 * times.takeover_seconds
    if times.orphan_seconds_max < backoff_seconds:
        told.append(
            f"orphan_seconds_max = {times.orphan_seconds_max:g}: takeovers that back off need up "
            f"to {backoff_seconds:g} s, and learners stop before that"
        )
    leave_seconds = window.step_seconds + window.upload_seconds
    if leave_seconds > of_run.LEAVE_SECONDS_MAX:
        told.append(
            f"window.step_seconds + upload_seconds = {leave_seconds:g}: a learner that is told to "
            f"end leaves at its next step, and has {of_run.LEAVE_SECONDS_MAX:g} s to say farewell"
        )
    return told
