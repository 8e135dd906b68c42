"""What a learner waits for is told once when it begins, once when it ends, and in its beats."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from decodiloco.learner.waits import Waits
from decodiloco.stopping import STOPS, heeded


def test_a_wait_is_told_when_it_begins_and_when_it_ends() -> None:
    with capture_logs() as lines:
        waits = Waits("trial", "a")
        waits.begin("store", "the disk is full")
        waits.begin("store", "the disk is still full")
        waits.begin("inbox", "no answer")
        assert waits.longest() == "store"
        waits.end("store")
        waits.end("store")
        assert waits.longest() == "inbox"
        waits.end("inbox")
    assert waits.longest() == ""
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "waits for the store"),
        ("warning", "waits for the inbox"),
        ("info", "the store answers again"),
        ("info", "the inbox answers again"),
    ]
    assert (lines[0]["reason"], lines[0]["run"], lines[0]["learner"]) == (
        "the disk is full",
        "trial",
        "a",
    )


@pytest.fixture
def signals() -> Iterator[None]:
    """Puts the handlers back as they were."""
    before = {number: signal.getsignal(number) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert heeded() == [signal.SIGINT, signal.SIGTERM]
