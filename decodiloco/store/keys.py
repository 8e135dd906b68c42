"""The key of every blob, computed from facts and never taken from a message.

Each key ends in 16 hex digits of the blob's digest, so the same key is the same bytes and a
learner's rights can be granted by prefix.
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.events import (
    CheckpointStored,
    DeltaOffered,
    Event,
    FragmentMerged,
    RunOpened,
    SnapshotStored,
)
from streams.manifest import Manifest
from streams.subjects import checked


def _mark(manifest: Manifest) -> str:
    return manifest.digest.hex()[:16]


KINDS = (
    "opening",
    "delta",
    "global",
    "outer",
    "report",
    "checkpoint",
    "snapshot",
    "archive",
    "doctor",
)


def prefixes_of(run: str) -> dict[str, str]:
    """The prefix of each kind of blob, and of the whole `run`; each ends in a slash."""
    root = f"{checked(run, 'run')}/"
    return {"run": root, **{kind: f"{root}{kind}/" for kind in KINDS}}


def opening_key(run: str, manifest: Manifest) -> str:
    return f"{checked(run, 'run')}/opening/{_mark(manifest)}"


def delta_key(
    run: str, learner: str, incarnation: int, fragment: int, learner_step: int, manifest: Manifest
) -> str:
    """A delta, by the learner's life, the fragment and the step of its copy."""
    return (
        f"{checked(run, 'run')}/delta/{checked(learner, 'learner')}/{incarnation}"
        f"/f{fragment}-{learner_step}-{_mark(manifest)}"
    )


def key_of_offer(run: str, offer: DeltaOffered) -> str:
    return delta_key(
        run,
        offer.learner,
        offer.incarnation,
        offer.fragment,
        offer.learner_step,
        offer.manifest,
    )


def global_key(run: str, fragment: int, version: int, manifest: Manifest) -> str:
    """Merged parameters of a fragment at a version (0: the opening's)."""
    return f"{checked(run, 'run')}/global/f{fragment}/{version}-{_mark(manifest)}"


def outer_key(run: str, fragment: int, version: int, manifest: Manifest) -> str:
    """Outer momentum of a fragment at a version (from 1 on; before, it is zero)."""
    return f"{checked(run, 'run')}/outer/f{fragment}/{version}-{_mark(manifest)}"


def report_key(run: str, round_number: int, manifest: Manifest) -> str:
    return f"{checked(run, 'run')}/report/{round_number}-{_mark(manifest)}"


def checkpoint_key(run: str, learner: str, learner_step: int, manifest: Manifest) -> str:
    return (
        f"{checked(run, 'run')}/checkpoint/{checked(learner, 'learner')}"
        f"/{learner_step}-{_mark(manifest)}"
    )


def key_of_checkpoint(run: str, stored: CheckpointStored) -> str:
    return checkpoint_key(run, stored.learner, stored.learner_step, stored.manifest)


def snapshot_key(run: str, position: int, manifest: Manifest) -> str:
    return f"{checked(run, 'run')}/snapshot/{position}-{_mark(manifest)}"


def archive_key(run: str, first: int, manifest: Manifest) -> str:
    """A segment of the tape, by the position of its first fact."""
    return f"{prefixes_of(run)['archive']}{first}-{_mark(manifest)}"


def named_by(
    run: str, event: Event, first: Iterable[Manifest] = ()
) -> tuple[tuple[str, Manifest], ...]:
    """Key and manifest of every blob that a fact names.

    `first` are the first fragments, which `RunOpened` names through its opening.
    """
    match event:
        case RunOpened():
            fragments = (
                (global_key(run, index, 0, each), each) for index, each in enumerate(first)
            )
            return (opening_key(run, event.opening), event.opening), *fragments
        case DeltaOffered():
            return ((key_of_offer(run, event), event.manifest),)
        case FragmentMerged(fragment=fragment, version=version):
            return (
                (global_key(run, fragment, version, event.parameters), event.parameters),
                (outer_key(run, fragment, version, event.momentum), event.momentum),
                (report_key(run, event.round, event.report), event.report),
            )
        case CheckpointStored():
            return ((key_of_checkpoint(run, event), event.manifest),)
        case SnapshotStored():
            return ((snapshot_key(run, event.position, event.manifest), event.manifest),)
        case _:
            return ()
