"""Facts for tests, with sane defaults: name what matters, leave the rest.

`offered("a", fragment=2, tokens=900)` reads as a sentence; the same call is the same fact.
"""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

from streams import events as facts
from streams import parts
from streams.codec import seal
from streams.envelope import Envelope, Source, genesis
from streams.events import Event
from streams.manifest import Manifest

RUN = "trial"


def digest(name: str) -> bytes:
    """32 bytes that stand for something, told apart by its name."""
    return blake3(name.encode()).digest()


def manifest(name: str = "blob", size_bytes: int = 4096, codec: str = "fp32") -> Manifest:
    """A manifest of a blob that is nowhere."""
    return Manifest(bytes=size_bytes, digest=digest(name), codec=codec)


def opened(run: str = RUN, **fields: object) -> facts.RunOpened:
    """The first fact of a run."""
    return facts.RunOpened.model_validate(
        {
            "run": run,
            "config_digest": digest("config"),
            "layout_digest": digest("layout"),
            "store": "memory://trial",
            "opening": manifest("opening", codec="msgpack"),
            "rules": 1,
            **fields,
        }
    )


def joined(learner: str = "a", **fields: object) -> facts.LearnerJoined:
    """A learner's first life; `nonce` follows from the learner's id."""
    return facts.LearnerJoined.model_validate(
        {
            "learner": learner,
            "slot": 0,
            "nonce": digest(f"life of {learner}")[:16],
            "seen": 1,
            "region": "home",
            "layout_digest": digest("layout"),
            "fingerprint": "test",
            "cursor": b"",
            "learner_step": 0,
            "tokens_trained": 0,
            "versions": (0, 0, 0, 0),
            "moments": parts.Moments(source="zero", age_steps=0),
            **fields,
        }
    )


def adopted(fragment: int = 0, version: int = 1, **fields: object) -> parts.Adoption:
    """An adoption, as it rides in a learner's word."""
    return parts.Adoption.model_validate(
        {
            "fragment": fragment,
            "version": version,
            "learner_step": 4,
            "tokens_trained": 400,
            "fetch_seconds": 0.25,
            **fields,
        }
    )


def left(learner: str = "a", **fields: object) -> facts.LearnerLeft:
    """A learner that finished."""
    return facts.LearnerLeft.model_validate(
        {
            "learner": learner,
            "incarnation": 3,
            "said": 2,
            "seen": 1,
            "reason": "finished",
            "learner_step": 8,
            "tokens_trained": 800,
            "cursor": b"",
            "adopted": (),
            "digest": digest("model"),
            **fields,
        }
    )


def lost(learner: str = "a", **fields: object) -> facts.LearnerLost:
    """A learner that fell silent."""
    return facts.LearnerLost.model_validate(
        {
            "learner": learner,
            "incarnation": 3,
            "reason": "silent",
            "silent_seconds": 10.0,
            **fields,
        }
    )


def round_opened(round: int = 0, fragment: int = 0, version: int = 1, **fields: object) -> Event:
    """A round that collects a fragment's first version."""
    return facts.RoundOpened.model_validate(
        {
            "round": round,
            "fragment": fragment,
            "version": version,
            "pace_seconds": 1.0,
            "grace_seconds_max": 0.5,
            "tokens": 0,
            **fields,
        }
    )


def offered(
    learner: str = "a", round: int = 0, fragment: int = 0, tokens: int = 400, **fields: object
) -> facts.DeltaOffered:
    """An offer of four steps; `tokens_trained` is its tokens, its delta is named by its place."""
    step = fields.get("learner_step", 4)
    name = f"delta {learner} f{fragment} step {step}"
    return facts.DeltaOffered.model_validate(
        {
            "learner": learner,
            "incarnation": 3,
            "said": 1,
            "seen": 4,
            "round": round,
            "fragment": fragment,
            "base_version": 0,
            "learner_step": 4,
            "inner_steps": 4,
            "tokens": tokens,
            "tokens_trained": tokens,
            "step_seconds": 1.0,
            "upload_seconds": 0.5,
            "loss": 4.25,
            "cursor": b"",
            "adopted": (),
            "manifest": manifest(name, codec="bf16"),
            **fields,
        }
    )


def refused(learner: str = "a", reason: str = "unknown base version", **fields: object) -> Event:
    """An offer that did not pass the word gates."""
    return facts.DeltaRefused.model_validate(
        {
            "learner": learner,
            "incarnation": 3,
            "said": 1,
            "round": 0,
            "fragment": 0,
            "learner_step": 4,
            "inner_steps": 4,
            "tokens": 400,
            "tokens_trained": 400,
            "reason": reason,
            **fields,
        }
    )


def message_refused(source: str = "in.trial.home.a.delta_offered", **fields: object) -> Event:
    """One message that could not be read."""
    return facts.MessageRefused.model_validate(
        {"source": source, "reason": "not msgpack", "count": 1, **fields}
    )


def window_closed(
    round: int = 0,
    fragment: int = 0,
    version: int = 1,
    offers: Iterable[int] = (5,),
    **fields: object,
) -> facts.WindowClosed:
    """A window that one offer closed."""
    return facts.WindowClosed.model_validate(
        {
            "round": round,
            "fragment": fragment,
            "version": version,
            "offers": tuple(offers),
            "superseded": (),
            "reason": "every live learner has answered",
            "quorum_seconds": 1.0,
            "waited_seconds": 1.0,
            **fields,
        }
    )


def merged(
    round: int = 0,
    fragment: int = 0,
    version: int = 1,
    contributions: Iterable[int] = (5,),
    **fields: object,
) -> facts.FragmentMerged:
    """A fragment's new version; its blobs are named by fragment and version."""
    name = f"f{fragment} version {version}"
    return facts.FragmentMerged.model_validate(
        {
            "round": round,
            "fragment": fragment,
            "version": version,
            "step": round + 1,
            "contributions": tuple(contributions),
            "left_out": (),
            "parameters": manifest(f"parameters {name}"),
            "momentum": manifest(f"momentum {name}"),
            "report": manifest(f"report {round}", codec="msgpack"),
            "outer_gradient_norm": 0.125,
            "merge_seconds": 0.25,
            "state_digest": digest("state"),
            **fields,
        }
    )


def left_out(position: int = 5, reason: str = "the blob is missing") -> parts.LeftOut:
    """An offer whose bytes did not pass the merge."""
    return parts.LeftOut(position=position, reason=reason)


def abandoned(round: int = 0, **fields: object) -> facts.MergeAbandoned:
    """A merge that too few offers passed."""
    return facts.MergeAbandoned.model_validate(
        {"round": round, "left_out": (left_out(),), **fields}
    )


def evaluated(loss: float = 3.5, speaker: str = "evaluator", **fields: object) -> Event:
    """The merged model's loss on held-out text."""
    return facts.EvaluationReported.model_validate(
        {
            "speaker": speaker,
            "life": 7,
            "said": 1,
            "step": 4,
            "versions": (1, 1, 1, 1),
            "tokens": 1600,
            "loss": loss,
            "dataset_digest": digest("text"),
            **fields,
        }
    )


def checkpointed(learner: str = "a", learner_step: int = 4, **fields: object) -> Event:
    """A learner's inner state, stored."""
    return facts.CheckpointStored.model_validate(
        {
            "learner": learner,
            "incarnation": 3,
            "said": 2,
            "learner_step": learner_step,
            "step": 1,
            "manifest": manifest(f"checkpoint {learner} {learner_step}", codec="fp32"),
            **fields,
        }
    )


def snapshot_stored(position: int = 8) -> facts.SnapshotStored:
    """The syncer's state as it stood at a position, stored."""
    return facts.SnapshotStored(
        position=position, manifest=manifest(f"snapshot {position}", codec="msgpack")
    )


def horizon_raised(position: int = 8, *kept: int) -> facts.HorizonRaised:
    """Bytes up to the snapshot of a position may go, but those of the kept facts."""
    stored = snapshot_stored(position)
    return facts.HorizonRaised(position=position, snapshot=stored.manifest, kept=kept)


def swept(position: int = 8) -> facts.StoreSwept:
    """A sweep that is done."""
    return facts.StoreSwept(position=position, blobs=3, bytes=12288)


def retention(keep_merges: int = 2, said: int = 1) -> facts.RetentionAsked:
    """An operator who says how many merges to keep."""
    return facts.RetentionAsked(speaker="operator", life=9, said=said, keep_merges=keep_merges)


def took_over(syncer: str = "syncer-1", fence: int = 1, **fields: object) -> facts.SyncerTookOver:
    """A syncer that begins to write."""
    return facts.SyncerTookOver.model_validate(
        {
            "syncer": syncer,
            "fence": fence,
            "rules": 1,
            "self_test": digest("merge v1"),
            "fingerprint": "test",
            **fields,
        }
    )


def hardship(kind: str = "kill", target: str = "learner a", **fields: object) -> Event:
    """A fault announced before it strikes."""
    return facts.HardshipInjected.model_validate(
        {
            "speaker": "injector",
            "life": 7,
            "said": 1,
            "hardship": kind,
            "target": target,
            "seed": 0,
            **fields,
        }
    )


def closing(reason: str = "asked", speaker: str = "operator", **fields: object) -> facts.RunClosing:
    """A run that is asked to end."""
    return facts.RunClosing.model_validate(
        {"speaker": speaker, "life": 7, "said": 1, "reason": reason, **fields}
    )


def closed(reason: str = "asked", **fields: object) -> facts.RunClosed:
    """The last fact."""
    return facts.RunClosed.model_validate(
        {
            "reason": reason,
            "step": 4,
            "tokens": 1600,
            "versions": (1, 1, 1, 1),
            "digest": digest("model"),
            **fields,
        }
    )


def one_of_each() -> tuple[Event, ...]:
    """Every kind of fact once, in an order in which a run could hold them."""
    return (
        opened(),
        took_over(),
        joined(),
        round_opened(),
        offered(adopted=(adopted(),)),
        refused(),
        message_refused(),
        window_closed(),
        merged(left_out=(left_out(6),)),
        abandoned(),
        evaluated(),
        checkpointed(),
        snapshot_stored(),
        horizon_raised(8, 5),
        swept(),
        retention(),
        hardship(),
        lost(),
        closing(),
        closed(),
        left(),
    )


def tape_of(
    events: Iterable[Event], run: str = RUN, writer: str = "syncer-1"
) -> tuple[Envelope, ...]:
    """These facts as a sound tape: numbered from 1, chained, under the fence that stands.

    A `SyncerTookOver` raises the fence from itself on, and its syncer is the writer. Time is
    the position, in seconds.
    """
    tape: list[Envelope] = []
    previous, fence = genesis(run), 0
    for position, event in enumerate(events, 1):
        if isinstance(event, facts.SyncerTookOver):
            fence, writer = event.fence, event.syncer
        tape.append(seal(position, previous, fence, writer, None, float(position), event))
        previous = tape[-1].digest
    return tuple(tape)


def sealed(event: Event, position: int = 1, source: Source | None = None) -> Envelope:
    """One fact in an envelope of its own, at any position, with a parent that is nowhere."""
    return seal(position, digest("parent"), 1, "syncer-1", source, float(position), event)
