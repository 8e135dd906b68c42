"""What a syncer knows: everything that the tape says so far, and nothing else. Knows no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, cast

from decodiloco.config import Run
from decodiloco.fragments.layout import Layout
from decodiloco.opening import Opening
from decodiloco.syncer.fates import Account
from decodiloco.syncer.in_flight import Offer, Offers
from streams.events import RunClosed
from streams.manifest import Manifest

RULES = 1  # the version of fold, merge and digest that this build follows
TOKENS_MAX = 2**53  # what a fact can carry; a sum of lies stays there


@dataclass(frozen=True)
class Learner:
    """One learner id: its newest life, how far it came, and the fates of its tokens.

    `adopted` and `anchor_steps` hold, for each fragment, the version in the live parameters and
    the learner step at which it was put there. `marks` and what the life was `marked_for` last:
    see `decodiloco.syncer.standing`.
    """

    id: str
    slot: int
    incarnation: int
    nonce: bytes
    region: str
    status: Literal["live", "left", "lost", "quarantined"]
    said: int
    joined_step: int
    joined_tokens: int
    learner_step: int
    tokens_trained: int
    cursor: bytes
    loss: float | None
    step_seconds: float | None
    upload_seconds: float | None
    fetch_seconds: float | None
    adopted: tuple[int, ...]
    anchor_steps: tuple[int, ...]
    accounts: tuple[Account, ...]
    marks: int = 0
    marked_for: str = ""

    def fates(self, fragment: int) -> dict[str, int]:
        """Tokens of each fate for one fragment, open ones among them: together all trained."""
        totals = cast(dict[str, int], self.accounts[fragment].totals())
        unsettled = self.tokens_trained - sum(totals.values())
        gone = self.status == "lost"
        totals["lost"] += unsettled if gone else 0
        totals["open"] = 0 if gone else unsettled
        return totals


@dataclass(frozen=True)
class Round:
    """A round that is not merged yet. `since`: the position at which it was opened last.

    `offers` and `closed_at` are set while its window is closed, and `distrusted`: those of the
    offers whose life had too many marks by then.
    """

    number: int
    fragment: int
    version: int
    since: int
    grace_seconds_max: float
    offers: tuple[int, ...] = ()
    distrusted: tuple[int, ...] = ()
    closed_at: int = 0

    @property
    def is_open(self) -> bool:
        """Whether offers for it still count."""
        return self.closed_at == 0


@dataclass(frozen=True)
class Merged:
    """The newest version of a fragment. Version 0 has neither momentum nor report."""

    version: int
    parameters: Manifest
    momentum: Manifest | None = None
    report: Manifest | None = None
    round: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A stored state: of which position, and at least so many merges are in it."""

    position: int
    step: int
    manifest: Manifest


@dataclass(frozen=True)
class Horizon:
    """Facts up to `position` may have lost their bytes, but for the `kept` ones.

    `raised_at` is the position of the fact that says so. Until it is swept, `after` and
    `kept_before` are position and kept facts of the horizon before: what these held may go, too.
    """

    position: int
    raised_at: int
    kept: tuple[int, ...]
    swept: bool = False
    after: int = 0
    kept_before: tuple[int, ...] = ()


@dataclass(frozen=True)
class Retention:
    """How bytes are let go of. `asked`: merges to keep as an operator said; None: as configured.

    `next` is the snapshot that becomes the horizon once enough merges stand behind it.
    """

    asked: int | None = None
    next: Snapshot | None = None
    horizon: Horizon | None = None


@dataclass(frozen=True)
class Timings:
    """Exponential averages (factor 0.5) of measured durations, in seconds; None: not yet known."""

    quorum_seconds: float | None = None
    merge_seconds: float | None = None


@dataclass(frozen=True)
class State:
    """A run up to `position`. `digest` is that of the last record: the tip of the chain.

    `superseded`: offers (position, fragment) that fell away and were not yet told.
    """

    opening: Opening
    run: str
    position: int = 0
    digest: bytes = b""
    fence: int = 0
    leader: str = ""
    rules: int = RULES
    store: str = ""
    step: int = 0
    fragments: tuple[Merged, ...] = ()
    rounds: Mapping[int, Round] = field(default_factory=dict)
    next_round: int = 1
    last_opened: int = 0
    offers: Offers = field(default_factory=Offers)
    superseded: tuple[tuple[int, int], ...] = ()
    learners: Mapping[str, Learner] = field(default_factory=dict)
    speakers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inboxes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    snapshot_step: int = 0
    retention: Retention = field(default_factory=Retention)
    liveness_changed: int = 0
    closing: Literal["steps", "tokens", "asked"] | None = None
    closing_at: int = 0
    closing_rounds: tuple[int, ...] = ()
    closed: RunClosed | None = None

    @property
    def config(self) -> Run:
        """The run's settings, from its opening."""
        return self.opening.run

    @property
    def keep_merges(self) -> int:
        """The bytes of at least so many newest merges are kept; 0: all bytes."""
        asked = self.retention.asked
        return (self.config.retention.keep_merges or 0) if asked is None else asked

    @property
    def layout(self) -> Layout:
        """The run's tensors, from its opening."""
        return self.opening.layout

    @property
    def versions(self) -> tuple[int, ...]:
        """How many merges each fragment has had."""
        return tuple(fragment.version for fragment in self.fragments)

    @property
    def parameters(self) -> tuple[Manifest, ...]:
        """The newest parameters of each fragment."""
        return tuple(fragment.parameters for fragment in self.fragments)

    @property
    def momentum(self) -> tuple[Manifest | None, ...]:
        """The newest outer momentum of each fragment; None where there is none yet."""
        return tuple(fragment.momentum for fragment in self.fragments)

    @property
    def tokens(self) -> int:
        """Tokens trained by all learners, as far as their words tell."""
        return min(TOKENS_MAX, sum(each.tokens_trained for each in self.learners.values()))

    @property
    def live(self) -> tuple[Learner, ...]:
        """The learners that have joined and neither left nor were lost, by id."""
        return tuple(
            self.learners[name]
            for name in sorted(self.learners)
            if self.learners[name].status == "live"
        )

    def waiting(self, fragment: int) -> tuple[Offer, ...]:
        """Offers of a fragment that are in no closed window, by learner id (one each)."""
        round_ = self.round_of(fragment)
        closed = round_.offers if round_ else ()
        found = [
            offer for position, offer in self.offers.of(fragment).items() if position not in closed
        ]
        return tuple(sorted(found, key=attrgetter("learner")))

    def round_of(self, fragment: int) -> Round | None:
        """The fragment's round that is not merged yet, if there is one."""
        for round_ in self.rounds.values():
            if round_.fragment == fragment:
                return round_
        return None
