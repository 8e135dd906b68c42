"""What `status` shows of a run: folded from facts, with the newest heartbeats."""

from __future__ import annotations

from decodiloco.status_view import Followed, followed, lines_of, report_of
from streams.pulse import Beat
from tests.builders import evaluated
from tests.desk import Desk


def told_by(desk: Desk) -> Followed:
    told = followed(desk.opening)
    for envelope in desk.tape:
        told.hear(envelope)
    assert told.state == desk.state
    return told


def beat_of(learner: str, **values: int | float | str) -> dict[str, Beat]:
    return {f"learner/{learner}": Beat("learner", learner, values)}
