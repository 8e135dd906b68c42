"""What a learner knows of its run and of itself, as frozen values, and what it may be asked.

Holds steps, versions and manifests only. The tensors themselves are the core's; clocks are the
session's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from decodiloco.opening import Opening
from streams.events import LearnerJoined, RunClosed, Word
from streams.manifest import Manifest
from streams.parts import Adoption

LeaveReason = Literal["finished", "asked", "preempted", "failed"]
Refresh = Literal["", "heal", "close"]


@dataclass(frozen=True, slots=True, order=True)
class RunClock:
    """How far the run was when a version was made: its merges, and the tokens of its round."""

    step: int = 0
    tokens: int = 0

    def later(self, other: RunClock) -> RunClock:
        """The later of two, in merges and in tokens each."""
        return RunClock(max(self.step, other.step), max(self.tokens, other.tokens))


START = RunClock()


@dataclass(frozen=True)
class Anchor:
    """The version that deltas are taken from, and this learner's counters where its work begins.

    These are the counters at the adoption, except under *carry*: there at the copy of ours that
    was merged last.
    """

    version: int
    learner_step: int
    tokens_trained: int


@dataclass(frozen=True)
class Copy:
    """A fragment as it stood at a boundary, and the anchor that its delta is taken from.

    Once its delta is made, `residuals` are the offers, by position, whose residuals are in it.
    """

    fragment: int
    base: Anchor
    learner_step: int
    tokens_trained: int
    loss: float
    cursor: bytes
    residuals: tuple[int, ...] = ()

    @property
    def inner_steps(self) -> int:
        """Steps of work that the delta holds."""
        return self.learner_step - self.base.learner_step

    @property
    def tokens(self) -> int:
        """Tokens of work that the delta holds."""
        return self.tokens_trained - self.base.tokens_trained


@dataclass(frozen=True)
class Round:
    """A fragment's round that is not merged yet. `collecting`: its window is still open.

    `tokens` are those that the run had trained when it was opened.
    """

    number: int
    version: int
    collecting: bool
    tokens: int = 0


@dataclass(frozen=True)
class Sent:
    """An offer of ours on the tape whose end is not known yet."""

    position: int
    fragment: int
    round: int
    learner_step: int
    tokens_trained: int
    residuals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Residual:
    """What coding lost of a merged offer of ours, until a merge has made it good."""

    position: int
    fragment: int
    learner_step: int


@dataclass(frozen=True)
class Fragment:
    """One fragment as this learner sees it.

    `answered` is the round that was answered last, `refusals` counts those of the round at hand,
    `offered_step` the step of the newest copy that was offered, and `wait_steps` after that the
    next may be made; `merged_step`, `merged_tokens` and `merged_version` are those of our last
    merged offer. `fetching` and `fetched` are versions on their way and at hand, -1 for none.
    `clock` is that of the newest version.
    """

    newest: int
    manifest: Manifest
    clock: RunClock = START
    anchor: Anchor = Anchor(-1, 0, 0)
    copy: Copy | None = None
    round: Round | None = None
    answered: int = 0
    refusals: int = 0
    offered_step: int = -1
    wait_steps: int = 1
    merged_step: int = -1
    merged_tokens: int = 0
    merged_version: int = -1
    fetching: int = -1
    fetched: int = -1
    fetch_seconds: float = 0.0

    def merged_since(self, version: int) -> int | None:
        """The step of our last copy since the anchor, if it is in a merge up to `version`."""
        is_told = self.anchor.version < self.merged_version <= version
        return self.merged_step if is_told and self.merged_step > self.anchor.learner_step else None


@dataclass(frozen=True)
class Draft:
    """What is to be said once its turn comes, already durable.

    An offer carries its round and its copy; a checkpoint its own and the run's step, and the
    residuals that are in it.
    """

    manifest: Manifest
    round: int = 0
    copy: Copy | None = None
    learner_step: int = 0
    step: int = 0
    residuals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaving:
    """The learner stops: why, and the digest of its live tensors when it has finished."""

    reason: LeaveReason
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint of some learner, as the tape names it."""

    learner: str
    learner_step: int
    step: int
    manifest: Manifest
    residuals: tuple[int, ...] = ()


@dataclass(frozen=True)
class State:
    """A learner between two happenings.

    `incarnation` is 0 until its `LearnerJoined` stands on the tape; `lost` says that the tape
    calls it silent, and has no word of it since; `ended_by` is the fact that ended this life, and
    `quarantined_for` why the run did so. `making` are offers on their
    way to the store, `drafts` what waits to be said, `in_flight` the word that was said and is
    not on the tape yet, `adoptions` those that no word has told. `refresh` asks for every
    fragment anew, overwritten at once: to heal what is not finite, or to close; `final` is true
    when the run's last versions stand in the model. `complaint` is why words of ours could not
    be read, as the tape last told. `step` is the newest merge that was heard of, `clock` that of
    the newest merge in the model: it moves at adoptions only. `residuals` are kept where the run
    feeds them back, `earlier` are offers of lives before this one whose end is not known yet.
    """

    opening: Opening
    learner: str
    fragments: tuple[Fragment, ...]
    nonce: bytes = b""
    position: int = 0
    incarnation: int = 0
    joined: LearnerJoined | None = None
    ended_by: int = 0
    quarantined_for: str = ""
    lost: bool = False
    learner_step: int = 0
    tokens_trained: int = 0
    cursor: bytes = b""
    loss: float = 0.0
    step_seconds: float | None = None
    upload_seconds: float | None = None
    said: int = 0
    making: tuple[Copy, ...] = ()
    drafts: tuple[Draft, ...] = ()
    in_flight: Word | None = None
    sent: tuple[Sent, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    step: int = 0
    clock: RunClock = START
    round: int = 0
    pace_seconds: float = 0.0
    closing: bool = False
    closed: RunClosed | None = None
    refresh: Refresh = ""
    healed_step: int = 0
    final: bool = False
    complaint: str = ""
    leaving: Leaving | None = None
    left: bool = False
    checkpointed_step: int = 0
    checkpointing: bool = False
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    residuals: tuple[Residual, ...] = ()
    restored: tuple[int, ...] = ()
    earlier: tuple[Sent, ...] = ()

    @property
    def versions(self) -> tuple[int, ...]:
        """The version of each fragment in the live parameters."""
        return tuple(fragment.anchor.version for fragment in self.fragments)

    @property
    def alive(self) -> bool:
        """Joined, and neither leaving nor replaced by a newer life."""
        return bool(self.incarnation) and not self.ended_by and self.leaving is None


@dataclass(frozen=True, slots=True)
class CopyFragments:
    """Copy these fragments to host memory; copies made earlier are dropped."""

    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Put fetched versions into the live parameters: pairs of fragment and version.

    A refresh overwrites whatever the settings are; to heal also zeroes the inner optimizer's
    moments.
    """

    versions: tuple[tuple[int, int], ...]
    refresh: Refresh = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """Make the delta of a copy, store it, and say so for this round."""

    round: int
    copy: Copy


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch a merged version of a fragment; `clock` is the run's when it was made."""

    fragment: int
    version: int
    manifest: Manifest
    clock: RunClock = START


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Store the inner optimizer's moments and the random states as of this step."""

    learner_step: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Every fragment stands at the run's last version: take the digest and say farewell."""


BoundaryAsk = CopyFragments | Adopt | StoreCheckpoint | Leave
BesideAsk = Offer | Fetch
