"""Who may say and hear what on a run's NATS server: exactly what our own client needs.

A learner, an evaluator and a viewer live *outside*: each in an account of its own, into which
the run's account lets only what is listed here. Permissions on subjects would not be enough: a
server sends its answer to whatever reply subject a request names, the tape's among them, and
only the border of an account bends that reply back. Operator, syncers and mergers live inside.

Knows subjects and API calls; neither keys nor how a server's configuration is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
    merge_subject,
    pulse_subject,
    tape_filters,
    tape_stream,
)

Role = Literal["learner", "evaluator", "viewer", "syncer", "merger", "operator", "leaf"]

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
    """What a user may publish and subscribe to, in its own account; all else is refused.

    `never`: what it may not publish, though `publish` allows it; `unheard`: what it may not
    subscribe to, though `subscribe` allows it. With `answers` it may also publish, once each, to
    the reply subjects of what it hears: whoever may speak to it chooses where to.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    never: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    answers: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer of the tape that is made for one learner: it names what it may read."""

    name: str
    filters: tuple[str, ...]


def domain_api(domain: str) -> str:
    """What requests to the JetStream of another server begin with."""
    return f"$JS.{domain}.API"


def domains_of(identities: Iterable[Identity]) -> frozenset[str]:
    """The regions whose inbox is in a JetStream domain of its own: those with a leaf server."""
    return frozenset(each.id for each in identities if each.role == "leaf")


def rights_of(identity: Identity, domains: Collection[str] = ()) -> Rights:
    """All that an identity may publish and subscribe to.

    `domains`: the regions whose inbox is in a JetStream domain of its own.
    """
    listens = f"{identity.inbox_prefix}.>"
    pulses = pulses_for(identity.run, identity)
    if identity.role == "operator":
        return Rights((EVERYTHING,), (EVERYTHING,))
    if identity.role == "syncer":
        return Rights(_of_syncer(identity, domains), (listens, pulses))
    if identity.role == "merger":
        asked = merge_subject(identity.run, identity.id)
        beats = pulse_subject(identity.run, identity.role, identity.id)
        return Rights((beats,), (listens, asked, pulses), answers=True)
    if identity.role == "leaf":
        return _of_leaf(identity)
    asks = tuple(service.outside for service in services_of(identity))
    hears = (pulses,) if heard_by(identity) else ()
    return Rights(asks, (listens, *hears))


def services_of(identity: Identity, domains: Collection[str] = ()) -> tuple[Service, ...]:
    """What an identity that lives outside may send into the run's account.

    A learner is on the server of its region, where that region's domain is the server's own.
    """
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
    services = [
        Service(f"{API}.{call}", f"{identity.api}.{call}", "MSG.NEXT" in call) for call in calls
    ]
    words = WORDS_OF.get(identity.role, ())
    if words or identity.role == "viewer":  # a viewer tells how full they are
        apart = () if identity.role == "learner" else domains
        for region in identity.regions:
            call = f"STREAM.INFO.{inbox_stream(run, region)}"
            services.append(Service(f"{_api(region, apart)}.{call}", f"{identity.api}.{call}"))
    if identity.role == "viewer":
        services.append(Service(f"{API}.INFO", f"{identity.api}.INFO"))
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


def pulses_for(run: str, identity: Identity | None) -> str:
    """What one listens to for heartbeats: a merger to syncers', else to all that it is let hear."""
    heard = "syncer" if identity is not None and identity.role == "merger" else "*"
    return f"pulse.{run}.{heard}.*"


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


def mirror_name(region: str) -> str:
    """The consumer by which a region's server copies the tape."""
    return f"mirror_{checked(region, 'region')}"


def mirror_subject(run: str, region: str) -> str:
    """Where the tape's records go to a region's server."""
    return f"mirror.{checked(run, 'run')}.{checked(region, 'region')}"


def _of_syncer(identity: Identity, domains: Collection[str]) -> tuple[str, ...]:
    """It writes the tape, reads it and inboxes by consumers that it makes, and asks mergers."""
    run, tape = identity.run, tape_stream(identity.run)
    inboxes = [(_api(each, domains), inbox_stream(run, each)) for each in identity.regions]
    calls = [f"{API}.STREAM.MSG.GET.{tape}"]
    for api, stream in ((API, tape), *inboxes):
        calls += [
            f"{api}.STREAM.INFO.{stream}",
            f"{api}.CONSUMER.CREATE.{stream}.*",
            f"{api}.CONSUMER.MSG.NEXT.{stream}.*",
            f"{api}.CONSUMER.DELETE.{stream}.*",
        ]
    beats = pulse_subject(run, identity.role, identity.id)
    return (f"tape.{run}.>", beats, f"merge.{run}.*", *calls)


def _of_leaf(identity: Identity) -> Rights:
    """What passes between the hub and a region's server, which a thief may have taken over.

    Out of the region come answers to what it was asked, heartbeats of its learners, and what its
    mirror asks. Never a fact, a word for another region, or a heartbeat of a syncer or a merger;
    and the hub's streams and consumers are neither made nor removed from there. What a merger is
    asked does not come by: it answers to wherever it is told, and who has read a question could
    answer it first.
    """
    run = identity.run
    merges = f"merge.{run}.>"
    never = (
        f"tape.{run}.>",
        f"in.{run}.>",
        f"mirror.{run}.>",
        f"pulse.{run}.syncer.*",
        f"pulse.{run}.merger.*",
        merges,
        f"{API}.>",
        f"{domain_api('*')}.STREAM.>",
        f"{domain_api('*')}.CONSUMER.CREATE.>",
        f"{domain_api('*')}.CONSUMER.DURABLE.>",
        f"{domain_api('*')}.CONSUMER.DELETE.>",
    )
    return Rights((EVERYTHING,), (EVERYTHING,), never, unheard=(merges,))


def _api(region: str, domains: Collection[str]) -> str:
    return domain_api(region) if region in domains else API
