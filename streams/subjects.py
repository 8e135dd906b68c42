"""Names of the streams and subjects of a run, made from checked ids only."""

from __future__ import annotations

import re

from streams.errors import BadName
from streams.events import Event, Fact, learner_of

NAME_RULE = "use 1 to 48 of a-z, 0-9 and -, beginning with a letter or digit"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")  # no _: it parts run and region


def is_name(name: str) -> bool:
    """Whether this may stand in a subject and a key."""
    return _NAME.fullmatch(name) is not None


def checked(name: str, what: str) -> str:
    """The name itself, if it may stand in a subject and a key; else BadName."""
    if not is_name(name):
        raise BadName(f"{what} {name!r}: {NAME_RULE}")
    return name


def tape_stream(run: str) -> str:
    return f"TAPE_{checked(run, 'run')}"


def inbox_stream(run: str, region: str) -> str:
    return f"IN_{checked(run, 'run')}_{checked(region, 'region')}"


def tape_subject(run: str, event: Event) -> str:
    """`tape.<run>.learner.<id>.<kind>` for one learner's facts, else `tape.<run>.run.<kind>`."""
    learner = learner_of(event)
    if learner is None:
        return f"tape.{checked(run, 'run')}.run.{event.kind}"
    return f"tape.{checked(run, 'run')}.learner.{checked(learner, 'learner')}.{event.kind}"


def tape_filters(run: str, learner: str | None) -> list[str]:
    """What a follower reads: all of the tape, or what the run and this one learner need."""
    if learner is None:
        return [f"tape.{checked(run, 'run')}.>"]
    return [
        f"tape.{checked(run, 'run')}.run.>",
        f"tape.{run}.learner.{checked(learner, 'learner')}.>",
    ]


def inbox_subject(run: str, region: str, speaker: str, word: Fact | type[Fact]) -> str:
    """Where a speaker says a word, or all words of a kind."""
    return (
        f"in.{checked(run, 'run')}.{checked(region, 'region')}"
        f".{checked(speaker, 'speaker')}.{word.kind}"
    )


def merge_subject(run: str, merger: str) -> str:
    """Where a leading syncer asks a merger for a merge."""
    return f"merge.{checked(run, 'run')}.{checked(merger, 'merger')}"


def pulse_subject(run: str, role: str, speaker: str) -> str:
    return f"pulse.{checked(run, 'run')}.{checked(role, 'role')}.{checked(speaker, 'speaker')}"
