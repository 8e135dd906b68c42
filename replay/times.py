"""Every wait of the proof's own in one table: how long, what for, and what comes after. Pure."""

from __future__ import annotations

from streams.times import Seconds

QUIET_SECONDS = Seconds(
    3.0, "farewells after RunClosed", "a recording is sealed, and a follower ends"
)
SYNC_SECONDS = Seconds(0.25, "more records to make durable at once", "the file is synced")
CATCH_UP_SECONDS = Seconds(
    5.0, "a server, once a recorder is told to stop", "the file is sealed as it is"
)
LAG_SECONDS = Seconds(1.0, "the time to measure the lag again", "the tape's end is asked for")
BEHIND_SECONDS = Seconds(10.0, "a shadow to check what was written", "it says that it falls behind")
SHADOW_TELL_SECONDS = Seconds(30.0, "the time to say again where a shadow is", "a line")
SHADOW_STORE_SECONDS = Seconds(
    1.0, "a store that does not answer a shadow", "the check is tried again"
)
GIT_SECONDS_MAX = Seconds(60.0, "git to tell the commit", "the installed version is told")
