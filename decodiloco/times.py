"""Every wait of a run in one table: fixed ones, and those derived from its heartbeat. Pure.

A derived wait is a function of `[run.times]`, so that no setting can put the two out of order; what
a setting can break is in `decodiloco.time_orders`. The record's own waits stand in `streams.times`.
docs/reference/times.md is made from all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streams.times import Seconds

if TYPE_CHECKING:
    from decodiloco.config import Times

# The syncer.

TAPE_PATIENCE_SECONDS = Seconds(
    600.0, "a tape that takes the leader's batch", "trouble: the syncer ends, a standby leads"
)
STORE_RETRY_SECONDS_MAX = Seconds(
    10.0, "a store that does not answer; doubled from 0.2 s", "what is owed is tried again"
)
REFUSALS_SECONDS = Seconds(
    10.0, "more that is unreadable from one inbox subject", "one fact says how much it was"
)
MERGE_PAUSE_SECONDS = Seconds(0.05, "a delta's bytes that are absent, at first", "another read")
MERGE_PAUSE_SECONDS_MAX = Seconds(
    1.0, "a delta's bytes that are absent, at most; run.times.fetch_seconds_max in all", "a read"
)

MERGER_ASK_SECONDS = Seconds(0.02, "a merge that a merger does, at first", "it is asked again")
MERGER_ASK_SECONDS_MAX = Seconds(
    0.5,
    "a merge that a merger does, at most",
    "it is asked again, for run.times.takeover_seconds",
)

# The learner.

RESEND_SECONDS = Seconds(5.0, "a word to be seen on the tape", "it is said again, under its number")
LAST_WORD_SECONDS = Seconds(
    2.0,
    "the first of a leaver's words that the inbox has, and the tape not",
    "it waits for none behind it either",
)
SYNCER_TELL_SECONDS = Seconds(
    2.0, "a syncer that takes a word up", "log and heartbeat say that the syncer is waited for"
)
HANG_SECONDS = Seconds(
    10.0,
    "a transfer of the store, or the run's network",
    "log and heartbeat say what is waited for",
)
RETRY_SECONDS_MIN = Seconds(0.25, "a store or inbox that failed, at first", "another attempt")
RETRY_SECONDS_MAX = Seconds(8.0, "a store or inbox that failed, at most", "another attempt")
JOIN_FETCH_SECONDS_MAX = Seconds(
    60.0, "each blob that a joining learner needs", "trouble: it does not join"
)
LEAVE_SECONDS_MAX = Seconds(
    12.0, "a learner's farewell to be said", "it is gone without; LearnerLost says so later"
)
FAREWELL_TAPE_SECONDS_MAX = Seconds(
    4.0, "a farewell that the inbox has to be on the tape, too", "the learner leaves all the same"
)
NOTICE_END_SECONDS = Seconds(
    25.0,  # of the 30 that the shortest spot notice gives
    "a learner that was told to stop to end",
    "it ends itself, whatever hangs",
)
NOTICE_MARGIN_SECONDS = Seconds(
    9.0, "connections that hang, out of that time", "the farewell has the rest"
)
LIFE_CLOSE_SECONDS = Seconds(3.0, "a learner's connections to be closed", "they are dropped")
LIFE_MARGIN_SECONDS = Seconds(1.0, "the network's thread, beyond a limit of its own", "the caller")
NETWORK_STOP_SECONDS = Seconds(5.0, "the network's thread to end", "the process ends without it")
TRAINER_TELL_SECONDS = Seconds(15.0, "the time to log step and loss again", "a line in the log")

# The store.

S3_LIMIT_SECONDS = Seconds(
    20.0, "an S3 server that fails or asks to slow down, over all attempts", "store unreachable"
)
S3_CONNECT_SECONDS_MAX = Seconds(5.0, "an S3 server that takes a connection", "the next attempt")
S3_SILENCE_SECONDS_MAX = Seconds(
    15.0, "the next bytes of an S3 answer; more for a large request", "the next attempt"
)
S3_PAUSE_SECONDS_MIN = Seconds(0.05, "an S3 server that failed, at first", "the next attempt")
S3_PAUSE_SECONDS_MAX = Seconds(2.0, "an S3 server that failed, at most", "the next attempt")

# Followers of the tape.

EVALUATOR_RETRY_SECONDS = Seconds(1.0, "a store that failed while evaluating", "another attempt")
EVALUATOR_FAREWELL_SECONDS_MAX = Seconds(
    60.0, "the last evaluation to be admitted", "trouble: is a syncer running?"
)
ARCHIVE_AGE_SECONDS = Seconds(10.0, "more facts for a segment", "the archive stores what there is")
ARCHIVE_LOOK_SECONDS = Seconds(1.0, "a longer tape to archive", "another look")
ARCHIVE_QUIET_SECONDS = Seconds(5.0, "farewells after RunClosed", "the archive is complete")
ARCHIVE_FAREWELL_SECONDS_MAX = Seconds(
    20.0, "the last segment to be stored, once told to end", "trouble: some facts are not archived"
)
METRICS_SECONDS = Seconds(1.0, "the time to work the metrics out again", "a new page")
METRICS_SIZES_SECONDS = Seconds(5.0, "the time to ask for sizes again", "a new page")
REFRESH_SECONDS = Seconds(1.0, "the time to show the status again", "a new screen")

# One machine: `demo` and `up`.

TICK_SECONDS = Seconds(0.25, "a change that the supervisor shows", "another look")
STILL_SECONDS_MAX = Seconds(180.0, "any fact on the tape of a run that is not closed", "trouble")
FAREWELL_SECONDS_MAX = Seconds(90.0, "the next farewell after RunClosed", "trouble")
MEETING_SECONDS_MAX = Seconds(60.0, "all learners to join, before the first round", "it begins")
LEAVE_PROCESS_SECONDS_MAX = Seconds(10.0, "a learner that has left to end", "it is told to")
RESTART_PAUSE_SECONDS = Seconds(1.0, "a process that failed, at first", "it is started again")
RESTART_PAUSE_SECONDS_MAX = Seconds(15.0, "a process that failed, at most", "it is started again")
STEADY_SECONDS = Seconds(60.0, "a process that lives so long", "its restarts are forgiven")
TERM_SECONDS = Seconds(30.0, "a process that was told to end (SIGTERM)", "it is killed")
KILL_SECONDS = Seconds(5.0, "a process that was killed", "it is given up")
S3_SERVER_SECONDS_MAX = Seconds(
    30.0, "an S3 server of our own to be ready", "trouble, with its log"
)
S3_SERVER_STOP_SECONDS_MAX = Seconds(4.0, "an S3 server of our own to end", "it is killed")
PORT_SECONDS = Seconds(1.0, "a port of this machine to answer", "nothing listens there")
FADED_SECONDS = Seconds(2.0, "a heartbeat, on the demo's screen", "the lane fades")
PROGRESS_SECONDS = Seconds(4.0, "the time to tell of progress again, without a terminal", "a line")
KILL_LOOK_SECONDS = Seconds(0.02, "the step of a planned kill", "another look")
KILL_TARGET_SECONDS_MAX = Seconds(20.0, "a process to kill", "asked wrongly: there was none")
KILL_TAPE_SECONDS_MAX = Seconds(20.0, "a hardship to be on the tape", "trouble: see the logs")


def echo_seconds(times: Times) -> float:
    """How old our own last heartbeat may be for the silence of others to count."""
    return min(3 * times.heartbeat_seconds, 0.75 * times.takeover_seconds)


def silent_seconds(times: Times) -> float:
    """After so long without a heartbeat `status` says that somebody is silent."""
    return max(3.0, 6 * times.heartbeat_seconds)


def faded_seconds(times: Times) -> float:
    """After so long without a heartbeat a lane of the demo's screen fades."""
    return max(FADED_SECONDS, 4 * times.heartbeat_seconds)


def listen_seconds(times: Times) -> float:
    """How long `status` listens for heartbeats before it says anything."""
    return max(1.0, 2 * times.heartbeat_seconds)


def close_seconds(times: Times) -> float:
    """How long `close` waits for a syncer that takes its word up: a takeover fits in."""
    return max(30.0, 3 * times.takeover_seconds)


@dataclass(frozen=True, slots=True)
class Derived:
    """A wait that follows from `[run.times]`, and how."""

    seconds: Callable[[Times], float]
    formula: str


DERIVED = (
    Derived(echo_seconds, "min(3 heartbeat, 0.75 takeover)"),
    Derived(silent_seconds, "max(3, 6 heartbeat)"),
    Derived(faded_seconds, "max(FADED_SECONDS, 4 heartbeat)"),
    Derived(listen_seconds, "max(1, 2 heartbeat)"),
    Derived(close_seconds, "max(30, 3 takeover)"),
)
