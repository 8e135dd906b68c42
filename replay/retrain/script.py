"""What the learners of a tape did, step by step, worked out from its facts. Pure.

Knows the tape's words and what a learner does with them; it must not know tensors or bytes. The
whole tape is read first, since a word may tell later what was adopted before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from decodiloco.config import Run
from decodiloco.learner.machine import NOT_FINITE
from decodiloco.learner.state import START, RunClock
from decodiloco.opening import Opening
from replay.errors import Differs
from replay.retrain.lives import Life, Writing
from replay.synthetic.mark import Marks
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    MergeAbandoned,
    RoundOpened,
)
from streams.parts import Adoption, LeftOut

Version = tuple[int, int]  # a fragment and its version


@dataclass(slots=True)
class Script:
    """All lives, by the position of their `LearnerJoined`, and what the merges say to them.

    `clocks` are the run's at each version: the merge that made it, and the tokens at the opening
    of its round. `merged_at` gives, for an offer that is in a merge, the position of the merge.
    `uses` counts how often a version is written into a model, `moments` how many lives take
    their moments from the checkpoint at a position, `residuals` in how many deltas and checkpoints
    the residual of an offer is. `synthetic`: nobody trained; the tape was made
    up, and names bytes that were never made. Only its syncers say so: a learner may call itself
    what it likes.
    """

    lives: dict[int, Life] = field(default_factory=dict)
    clocks: dict[Version, RunClock] = field(default_factory=dict)
    merged_at: dict[int, int] = field(default_factory=dict)
    uses: Counter[Version] = field(default_factory=Counter)
    moments: Counter[int] = field(default_factory=Counter)
    residuals: Counter[int] = field(default_factory=Counter)
    synthetic: bool = False

    def clock(self, fragment: int, version: int) -> RunClock:
        """The run's clock at a version; it stands at zero at the opening."""
        return self.clocks.get((fragment, version), START)


def read_script(
    envelopes: Iterable[Envelope], opening: Opening, learners: Sequence[str] = ()
) -> Script:
    """The script of a tape; with `learners`, only of their lives.

    Raises Differs where a life cannot have gone as the tape tells it.
    """
    reader = _Reader(opening)
    for envelope in envelopes:
        reader.read(envelope)
    return reader.finished(frozenset(learners))


@dataclass(slots=True)
class _Heard:
    """What else is heard of one life: its words in order, and where its bytes were at fault."""

    adoptions: dict[tuple[int, int, int], Adoption] = field(default_factory=dict)
    offers: list[tuple[int, DeltaOffered]] = field(default_factory=list)
    faults: list[tuple[int, int]] = field(default_factory=list)  # position, learner step


class _Reader:
    """Reads a tape once, and then writes each life's boundaries."""

    def __init__(self, opening: Opening) -> None:
        self._run: Run = opening.run
        self._fragments = opening.layout.fragments
        self._script = Script()
        self._heard: dict[int, _Heard] = {}
        self._tokens: dict[int, int] = {}
        self._versions: dict[int, int] = {}  # of the merge that an offer is in
        self._offers: dict[int, DeltaOffered] = {}
        self._checkpoints: list[tuple[int, CheckpointStored]] = []
        self._marks = Marks()
        self._steps: list[tuple[int, int]] = [(0, 0)]  # position and step of each merge

    def read(self, envelope: Envelope) -> None:
        """Takes in the next fact."""
        position, event = envelope.position, envelope.event
        self._marks.note(envelope)
        match event:
            case LearnerJoined():
                self._joined(position, event)
            case DeltaOffered():
                self._offered(position, event)
            case DeltaRefused():
                if event.reason.startswith(NOT_FINITE) and event.incarnation in self._heard:
                    fault = position, event.learner_step
                    self._heard[event.incarnation].faults.append(fault)
            case CheckpointStored():
                self._stored(position, event)
            case LearnerLeft():
                self._left(position, event)
            case RoundOpened():
                self._tokens[event.round] = event.tokens
            case FragmentMerged():
                self._merged(position, event)
            case MergeAbandoned():
                self._left_out(position, event.left_out)
            case _:
                pass

    def finished(self, chosen: frozenset[str]) -> Script:
        """The script, once the whole tape is read."""
        script = self._script
        if chosen:
            script.lives = {
                position: life for position, life in script.lives.items() if life.learner in chosen
            }
        script.synthetic = self._marks.is_synthetic
        for position, life in script.lives.items():
            self._write(life, self._heard[position])
            self._count(life)
        return script

    def _joined(self, position: int, event: LearnerJoined) -> None:
        life = Life(position, event, last_step=event.learner_step, last_position=position)
        life.counts[event.learner_step] = event.tokens_trained
        life.moments_at = self._moments_of(event)
        self._script.lives[position] = life
        self._heard[position] = _Heard()

    def _offered(self, position: int, event: DeltaOffered) -> None:
        life = self._life(position, event)
        began = life.joined.learner_step
        if event.learner_step <= began or min(event.tokens, event.inner_steps) < 1:
            raise Differs(
                f"{event.inner_steps} steps and {event.tokens} tokens, offered at step "
                f"{event.learner_step} of a life that began at step {began}",
                position,
            )
        heard = self._heard[event.incarnation]
        for at in event.residuals:
            self._check_residual(position, event, at)
        self._offers[position] = event
        heard.offers.append((position, event))
        self._told(life, heard, position, event)
        life.counts[event.learner_step] = event.tokens_trained
        life.at(event.learner_step).offers[position] = event
        self._reaches(life, position, event.learner_step)

    def _check_residual(self, position: int, event: DeltaOffered, at: int) -> None:
        """A residual is of a merged offer of the same learner and fragment."""
        offer = self._offers.get(at)
        ours = offer is not None and (offer.learner, offer.fragment) == (
            event.learner,
            event.fragment,
        )
        if not ours or at not in self._script.merged_at:
            raise Differs(
                f"it holds the residual of {at}, which is no merged offer of learner "
                f"{event.learner} for fragment {event.fragment}",
                position,
            )

    def _stored(self, position: int, event: CheckpointStored) -> None:
        life = self._life(position, event)
        life.at(event.learner_step).checkpoint = position, event
        self._reaches(life, position, event.learner_step)
        self._checkpoints.append((position, event))

    def _left(self, position: int, event: LearnerLeft) -> None:
        life = self._life(position, event)
        life.counts[event.learner_step] = event.tokens_trained
        self._told(life, self._heard[event.incarnation], position, event)

    def _merged(self, position: int, event: FragmentMerged) -> None:
        script = self._script
        clock = RunClock(event.step, self._tokens.get(event.round, 0))
        script.clocks[event.fragment, event.version] = clock
        for offer in event.contributions:
            script.merged_at[offer] = position
            self._versions[offer] = event.version
        self._steps.append((position, event.step))
        self._left_out(position, event.left_out)

    def _left_out(self, position: int, left_out: Iterable[LeftOut]) -> None:
        for each in left_out:
            offer = self._offers.get(each.position)
            if offer is not None and each.reason.startswith(NOT_FINITE):
                self._heard[offer.incarnation].faults.append((position, offer.learner_step))

    def _life(self, position: int, event: DeltaOffered | CheckpointStored | LearnerLeft) -> Life:
        life = self._script.lives.get(event.incarnation)
        if life is None or life.learner != event.learner:
            raise Differs(
                f"a word of learner {event.learner} in a life that began at {event.incarnation}, "
                "where none of it did",
                position,
            )
        return life

    def _reaches(self, life: Life, position: int, step: int) -> None:
        life.last_step = max(life.last_step, step)
        life.last_position = position

    def _told(
        self, life: Life, heard: _Heard, position: int, event: DeltaOffered | LearnerLeft
    ) -> None:
        life.told_position = position
        life.told_step = max(life.told_step, event.learner_step)
        held = event.held if isinstance(event, DeltaOffered) else ()
        for adoption in (*event.adopted, *held):
            here = adoption.learner_step, adoption.fragment, adoption.version
            heard.adoptions[here] = adoption
            life.counts[adoption.learner_step] = adoption.tokens_trained

    def _moments_of(self, event: LearnerJoined) -> int:
        """The position of the checkpoint that this life took its moments from; 0 for none.

        The rule of `decodiloco.learner.joining.candidates`, at the newest moment up to `seen` at
        which a checkpoint of this age was to be had, without those that were passed over.
        """
        if event.moments.source == "zero":
            return 0
        seen = event.seen
        while seen > 0:
            known = [entry for entry in self._checkpoints if entry[0] <= seen]
            at, step = next(entry for entry in reversed(self._steps) if entry[0] <= seen)
            newest = {stored.learner: (place, stored) for place, stored in known}
            for place, stored in self._candidates(event, newest, step):
                if max(0, step - stored.step) == event.moments.age_steps:
                    return place
            seen = max([at, *(place for place, _ in known)]) - 1
        raise Differs(
            f"learner {event.learner} took {event.moments.source} moments of an age of "
            f"{event.moments.age_steps} steps, and no checkpoint on the tape fits",
            event.seen,
        )

    def _candidates(
        self, event: LearnerJoined, newest: dict[str, tuple[int, CheckpointStored]], step: int
    ) -> list[tuple[int, CheckpointStored]]:
        passed = {(one.learner, one.learner_step) for one in event.moments.passed_over}
        newest = {
            name: entry
            for name, entry in newest.items()
            if (name, entry[1].learner_step) not in passed
        }
        if event.moments.source == "own":
            return [newest[event.learner]] if event.learner in newest else []
        others = [newest[name] for name in sorted(newest) if name != event.learner]
        fresh = [entry for entry in others if step - entry[1].step <= self._run.inner_steps]
        return sorted(fresh, key=lambda entry: -entry[1].step)

    def _write(self, life: Life, heard: _Heard) -> None:
        """Puts the adoptions into a life's boundaries, those that no word told among them."""
        told = list(heard.adoptions)
        steps = {(fragment, version): step for step, fragment, version in told}
        if not self._run.adoption.carry:  # there a base is older than the adoption
            for _, offer in heard.offers:
                here = offer.fragment, offer.base_version
                if here not in steps and offer.base_version > life.joined.versions[offer.fragment]:
                    steps[here] = offer.learner_step - offer.inner_steps
                    told.append((steps[here], *here))
        for step, fragment, version in sorted(told):
            life.at(step).adoptions.append(Writing(fragment, version))
        for step in self._heals(life, heard):
            life.at(step).heals = True
        if self._run.adoption.carry:
            self._find_merged(life, heard)

    def _heals(self, life: Life, heard: _Heard) -> list[int]:
        """The steps at which all fragments were overwritten and the moments zeroed.

        After a verdict `not finite` nothing is copied until then: it is the first step at which
        every fragment is written and from which on the life's later offers begin.
        """
        whole = [
            step
            for step, boundary in sorted(life.boundaries.items())
            if len({writing.fragment for writing in boundary.adoptions}) == self._fragments
        ]
        healed: list[int] = []
        for position, spoilt in sorted(heard.faults):
            if healed and spoilt <= healed[-1]:
                continue
            later = [offer for at, offer in heard.offers if at > position]
            bases = [offer.learner_step - offer.inner_steps for offer in later]
            first = min((base for base in bases if base >= spoilt), default=spoilt)
            healed += [step for step in whole if step >= first][:1]
        return healed

    def _find_merged(self, life: Life, heard: _Heard) -> None:
        """Which work of this life is in each version that it adopts: *carry* wants to know."""
        versions = list(life.joined.versions)
        bases = [life.joined.learner_step] * self._fragments
        for step, boundary in sorted(life.boundaries.items()):
            for place, writing in enumerate(boundary.adoptions):
                fragment = writing.fragment
                merged = [
                    offer.learner_step
                    for position, offer in heard.offers
                    if offer.fragment == fragment
                    and versions[fragment] < self._versions.get(position, -1) <= writing.version
                    and offer.learner_step > bases[fragment]
                ]
                found = None if boundary.heals else max(merged, default=None)
                boundary.adoptions[place] = replace(writing, merged_step=found)
                versions[fragment] = writing.version
                bases[fragment] = step if boundary.heals else found or bases[fragment]

    def _count(self, life: Life) -> None:
        """Forgets what comes after the last step wanted, and counts what is used."""
        script = self._script
        if life.last_position == life.incarnation:
            return  # nothing of this life is seen again
        for fragment, version in enumerate(life.joined.versions):
            script.uses[(fragment, version)] += 1
        if life.moments_at:
            script.moments[life.moments_at] += 1
        for step, boundary in sorted(life.boundaries.items()):
            if step >= life.last_step and not boundary.heals:
                boundary.adoptions = []
            for writing in boundary.adoptions:
                script.uses[(writing.fragment, writing.version)] += 1
            for at in boundary.residuals(script.merged_at if script.synthetic else None):
                script.residuals[at] += 1
