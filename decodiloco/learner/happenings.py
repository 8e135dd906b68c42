"""What happens to a learner off the tape, told to its machine as values."""

from __future__ import annotations

from dataclasses import dataclass

from decodiloco.learner.state import START, Copy, Leaving, Refresh, RunClock
from streams.events import Word
from streams.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Loaded:
    """Before joining: these versions (one a fragment) were written into the model.

    `nonce` is what the learner's `LearnerJoined` will carry, `clock` that of the newest of the
    merges that made these versions.
    """

    versions: tuple[int, ...]
    nonce: bytes
    clock: RunClock = START


@dataclass(frozen=True, slots=True)
class Restored:
    """Before joining: the residuals of these positions are at hand, from the last checkpoint."""

    residuals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stepped:
    """One inner step was trained; it took so long."""

    tokens: int
    loss: float
    cursor: bytes
    step_seconds: float


@dataclass(frozen=True, slots=True)
class Copied:
    """These fragments were copied to host memory; all earlier copies are gone."""

    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Adopted:
    """These versions were put into the live parameters: pairs of fragment and version.

    `clock` is that of the newest of the merges that made them.
    """

    versions: tuple[tuple[int, int], ...]
    refresh: Refresh = ""
    clock: RunClock = START


@dataclass(frozen=True, slots=True)
class OfferBegun:
    """A delta is being made from this copy, for this round."""

    round: int
    copy: Copy


@dataclass(frozen=True, slots=True)
class OfferStored:
    """The delta of this copy is durable; making and storing it took so long."""

    round: int
    copy: Copy
    manifest: Manifest
    upload_seconds: float


@dataclass(frozen=True, slots=True)
class OfferFailed:
    """The delta of this copy could not be stored."""

    round: int
    copy: Copy


@dataclass(frozen=True, slots=True)
class FetchBegun:
    """A version is being fetched."""

    fragment: int
    version: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A version lies at hand; fetching it took so long."""

    fragment: int
    version: int
    fetch_seconds: float


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A version could not be fetched."""

    fragment: int
    version: int


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """The inner state was copied at this step; it is being stored."""

    learner_step: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """The inner state of a step is durable, with the residuals of these positions."""

    learner_step: int
    step: int
    manifest: Manifest
    residuals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The inner state could not be stored; the next checkpoint is due in its time."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """This word was given to the inbox; it waits for the tape."""

    word: Word


@dataclass(frozen=True, slots=True)
class LetGo:
    """The word in flight lies in the inbox, and a learner that leaves waits for it no longer."""


@dataclass(frozen=True, slots=True)
class LeaveWanted:
    """The learner stops."""

    leaving: Leaving


Happening = (
    Loaded
    | Restored
    | Stepped
    | Copied
    | Adopted
    | OfferBegun
    | OfferStored
    | OfferFailed
    | FetchBegun
    | Fetched
    | FetchFailed
    | CheckpointTaken
    | CheckpointSaved
    | CheckpointFailed
    | Spoken
    | LetGo
    | LeaveWanted
)
