"""Every wait of the record in one table: how long, what for, and what comes when it is over. Pure.

The transport's own waits stand here; those of a run, which are derived from its heartbeat and
takeover, stand in `decodiloco.times`. docs/reference/times.md is made from both.
"""

from __future__ import annotations

from collections.abc import Mapping


class Seconds(float):
    """A number of seconds that says what is waited for, and what happens when it is over."""

    __slots__ = ("then", "waits_for")

    waits_for: str
    then: str

    def __new__(cls, seconds: float, waits_for: str, then: str) -> Seconds:
        """`waits_for` and `then` are parts of a sentence: no capital, no full stop."""
        made = super().__new__(cls, seconds)
        made.waits_for = waits_for
        made.then = then
        return made

    @property
    def nanoseconds(self) -> int:
        """As JetStream counts."""
        return round(self * 1_000_000_000)


def waits_in(names: Mapping[str, object]) -> dict[str, Seconds]:
    """The waits among a module's names, in the order in which they are written."""
    return {name: value for name, value in names.items() if isinstance(value, Seconds)}


# A link: one socket to a server.

OPEN_SECONDS = Seconds(2.0, "a NATS server that takes a new link", "the next attempt, or no server")
FIRST_SECONDS = Seconds(2.0, "a first link, tried again and again", "no server answers: exit 3")
CLOSE_SECONDS = Seconds(1.0, "a link that is being closed", "its socket is dropped")
PING_SECONDS = Seconds(0.5, "the time to ask the server whether it is there", "a ping")
HEALTHY_SECONDS = Seconds(1.5, "an answer to a ping", "silence of others means nothing any more")
PONG_SECONDS_MAX = Seconds(3.0, "an answer to a ping", "the link is dead, and another is opened")
RECONNECT_PAUSE_SECONDS_MAX = Seconds(
    1.0, "a server that may come back; doubled from 0.02 s", "the next attempt to open a link"
)

# Requests.

API_SECONDS = Seconds(5.0, "an answer of JetStream, or a link to ask on", "server unreachable")
ASK_AGAIN_SECONDS = Seconds(0.5, "an answer to a read", "the same request is published anew")
APPEND_SECONDS = Seconds(
    3.0,  # less than a cluster needs to elect: looking then costs no time
    "an answer to an append; and the time that the slowest line needs for the bytes",
    "its outcome is unknown, and is read from the tape",
)
LINK_SECONDS = Seconds(5.0, "a link to append on", "the outcome is unknown: nothing was sent")
APPEND_PATIENCE_SECONDS = Seconds(
    60.0, "an append whose outcome can be read", "trouble: is the server well?"
)
SHORTER_SECONDS = Seconds(
    0.3, "a leader that knows the tape's end", "another look; after four the tape is shorter"
)
STREAM_SECONDS = Seconds(10.0, "a stream that is made, or given back", "server unreachable")
STREAM_AGAIN_SECONDS = Seconds(2.0, "an answer that a stream was made", "it is asked for again")
ELECTION_SECONDS = Seconds(
    30.0, "servers that have just started to choose who leads them", "server unreachable"
)
PEERS_SECONDS = Seconds(
    10.0, "enough servers that may keep a new stream", "trouble: too few servers"
)

CALL_SECONDS = Seconds(2.0, "the answer of another process to a call", "no answer came")

# Inboxes.

SAY_SECONDS = Seconds(10.0, "an inbox that takes a word", "trouble; the word may be said again")
SAY_ATTEMPT_SECONDS = Seconds(3.0, "an answer to one attempt to say a word", "the next attempt")
INBOX_SECONDS_MAX = Seconds(7 * 24 * 3600.0, "a syncer that reads a word", "the inbox forgets it")
INBOX_TWIN_SECONDS = Seconds(
    600.0, "the same word said again", "it is stored again, and admitted once"
)
TAPE_TWIN_SECONDS = Seconds(
    120.0, "nothing: the tape sends no message ids", "this is the server's own default"
)

# Followers.

EXPIRES_SECONDS = Seconds(30.0, "records that one request may bring", "the request is made anew")
HEARTBEAT_SECONDS = Seconds(1.0, "a record", "the server says that the consumer lives")
SILENCE_SECONDS_MAX = Seconds(3.5, "a record, or a sign of a consumer", "the consumer is made anew")
INACTIVE_SECONDS = Seconds(30.0, "a request on a consumer", "the server forgets the consumer")
PULL_PAUSE_SECONDS_MAX = Seconds(
    1.0, "a server that makes a consumer; doubled from 0.02 s", "the next attempt"
)
RESET_SECONDS = Seconds(1.0, "a reader that is set back", "silence: is there such a reader?")
FOLLOW_SECONDS = Seconds(5.0, "records that a learner's request may bring", "it is made anew")
READ_SECONDS = Seconds(2.0, "each record that a reader has said it has", "the read is tried again")
READER_PAUSE_SECONDS_MAX = Seconds(
    0.3, "another life that reads by the same reader; drawn from 0 on", "the next request"
)
LOOK_SECONDS = Seconds(0.2, "a record on a tape that is polled", "another look")

# A server of our own on this machine.

START_SECONDS_MAX = Seconds(15.0, "a nats-server of our own to be ready", "trouble, with its log")
STOP_SECONDS_MAX = Seconds(10.0, "a nats-server of our own to end", "it is killed")
PROBE_SECONDS = Seconds(1.0, "a nats-server of our own to say its name", "it is not there")
