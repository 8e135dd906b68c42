"""Who may say and hear what on a run's NATS server: exactly what our own client needs.

A learner, an evaluator and a viewer live *outside*: each in an account of its own, into which
the run's account lets only what is listed here. Permissions on subjects would not be enough: a
server sends its answer to whatever reply subject a request names, the tape's among them, and
only the border of an account bends that reply back. Operator and syncers live inside.

Knows subjects and API calls; neither keys nor how a server's configuration is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from streams.errors import AskedWrongly
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    EvaluationReported,
    Fact,
    LearnerJoined,
    LearnerLeft,
)
from streams.subjects import (
    checked,
    inbox_stream,
    inbox_subject,
    pulse_subject,
    tape_filters,
    tape_stream,
)

Role = Literal["learner", "evaluator", "viewer", "syncer", "operator"]

ROLES: tuple[Role, ...] = get_args(Role)
OUTSIDE: tuple[Role, ...] = ("learner", "evaluator", "viewer")
SPEAKERS: tuple[Role, ...] = ("learner", "evaluator", "operator")
API = "$JS.API"
EVERYTHING = ">"

WORDS_OF: dict[Role, tuple[type[Fact], ...]] = {
    "learner": (LearnerJoined, LearnerLeft, DeltaOffered, CheckpointStored),
    "evaluator": (EvaluationReported,),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """One who has a key: a role in one run under one id, with the regions it may speak to."""

    run: str
    role: Role
    id: str
    regions: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise AskedWrongly(f"{self.role!r} is no role: use {', '.join(ROLES)}")
        checked(self.run, "run")
        checked(self.id, self.role)
        for region in self.regions:
            checked(region, "region")

    @property
    def outside(self) -> bool:
        return self.role in OUTSIDE

    @property
    def name(self) -> str:
        """Unlike any other of the run: neither a role nor an id holds an underscore."""
        return f"{self.role}_{self.id}"

    @property
    def account(self) -> str:
        return f"{self.run}_{self.name}" if self.outside else self.run

    @property
    def inbox_prefix(self) -> str:
        """Where its replies arrive; nobody else may listen there."""
        return f"_INBOX_{self.name}"

    @property
    def api(self) -> str:
        """What its JetStream requests begin with.

        Outside it is a name of our own: an account without JetStream answers `$JS.API` itself.
        """
        return f"api.{self.run}" if self.outside else API

    def __str__(self) -> str:
        return f"{self.role} {self.id} of run {self.run}"


@dataclass(frozen=True, slots=True)
class Service:
    """A subject of the run's account that may be asked, and what it is called outside."""

    inside: str
    outside: str
    answers_many: bool = False


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may publish and subscribe to, in its own account; all else is refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer of the tape that is made for one learner: it names what it may read."""

    name: str
    filters: tuple[str, ...]


def rights_of(identity: Identity) -> Rights:
    """All that an identity may publish and subscribe to."""
    listens = f"{identity.inbox_prefix}.>"
    pulses = f"pulse.{identity.run}.*.*"
    if identity.role == "operator":
        return Rights((EVERYTHING,), (EVERYTHING,))
    if identity.role == "syncer":
        return Rights(_of_syncer(identity), (listens, pulses))
    asks = tuple(service.outside for service in services_of(identity))
    hears = (pulses,) if heard_by(identity) else ()
    return Rights(asks, (listens, *hears))


def services_of(identity: Identity) -> tuple[Service, ...]:
    """What an identity that lives outside may send into the run's account."""
    run, tape = identity.run, tape_stream(identity.run)
    calls = [f"STREAM.INFO.{tape}"]
    if identity.role == "learner":
        for reader in readers_of(identity):
            calls += [
                f"CONSUMER.INFO.{tape}.{reader.name}",
                f"CONSUMER.RESET.{tape}.{reader.name}",
                f"CONSUMER.MSG.NEXT.{tape}.{reader.name}",
            ]
    else:
        calls.append(f"STREAM.MSG.GET.{tape}")
    words = WORDS_OF.get(identity.role, ())
    if words or identity.role == "viewer":  # a viewer tells how full they are
        calls += [f"STREAM.INFO.{inbox_stream(run, region)}" for region in identity.regions]
    if identity.role == "viewer":
        calls.append("INFO")
    services = [
        Service(f"{API}.{call}", f"{identity.api}.{call}", "MSG.NEXT" in call) for call in calls
    ]
    says = [
        inbox_subject(run, region, identity.id, word)
        for region in identity.regions
        for word in words
    ]
    if words:
        says.append(pulse_subject(run, identity.role, identity.id))
    return (*services, *(Service(subject, subject) for subject in says))


def heard_by(identity: Identity) -> tuple[str, ...]:
    """The heartbeats that the run's account lets out to an identity that lives outside."""
    match identity.role:
        case "learner":
            return (f"pulse.{identity.run}.syncer.*",)
        case "viewer":
            return (f"pulse.{identity.run}.*.*",)
        case _:
            return ()


def readers_of(identity: Identity) -> tuple[Reader, ...]:
    """The consumers that are made for a learner: one to follow, one to look things up."""
    if identity.role != "learner":
        return ()
    filters = tuple(tape_filters(identity.run, identity.id))
    return (Reader(identity.name, filters), Reader(f"{identity.name}_reads", filters))


def check_roster(identities: Sequence[Identity]) -> None:
    """Raises AskedWrongly for two that would speak under one id: each could pose as the other."""
    speakers: dict[str, Identity] = {}
    for identity in identities:
        if identity.role not in SPEAKERS:
            continue
        other = speakers.setdefault(identity.id, identity)
        if other.role != identity.role:
            raise AskedWrongly(
                f"{identity} and {other} would speak under one id: choose another id for one"
            )


def _of_syncer(identity: Identity) -> tuple[str, ...]:
    """It writes the tape, and reads tape and inboxes by consumers that it makes for itself."""
    run, tape = identity.run, tape_stream(identity.run)
    streams = (tape, *(inbox_stream(run, region) for region in identity.regions))
    calls = [f"STREAM.MSG.GET.{tape}"]
    for stream in streams:
        calls += [
            f"STREAM.INFO.{stream}",
            f"CONSUMER.CREATE.{stream}.*",
            f"CONSUMER.MSG.NEXT.{stream}.*",
            f"CONSUMER.DELETE.{stream}.*",
        ]
    return (
        f"tape.{run}.>",
        pulse_subject(run, identity.role, identity.id),
        *(f"{API}.{call}" for call in calls),
    )
