"""One life of a learner as the tape tells it: what to do at which of its steps.

Pure values, made by `replay.retrain.script` and carried out by `replay.retrain.trainee`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from streams.events import CheckpointStored, DeltaOffered, LearnerJoined


@dataclass(frozen=True, slots=True)
class Writing:
    """A version put into the live parameters.

    `merged_step` is the step of this life's newest offer that is in a merge between the anchor
    before and this version; None when there is none.
    """

    fragment: int
    version: int
    merged_step: int | None = None


@dataclass(slots=True)
class Boundary:
    """What is done after one step, in this order.

    First the copies of the offers made here, by the offers' positions; then the adoptions, which
    overwrite when they heal, and zero the moments; then the checkpoint, with its position.
    """

    offers: dict[int, DeltaOffered] = field(default_factory=dict)
    adoptions: list[Writing] = field(default_factory=list)
    heals: bool = False
    checkpoint: tuple[int, CheckpointStored] | None = None

    def residuals(self, only: Container[int] | None) -> Iterator[int]:
        """The residuals in what is made here; with `only`, in the deltas of these offers."""
        for position, offer in self.offers.items():
            if only is None or position in only:
                yield from offer.residuals
        if self.checkpoint is not None and only is None:
            yield from self.checkpoint[1].residuals


@dataclass(slots=True)
class Life:
    """From a `LearnerJoined` (at `incarnation`) to the last step that the tape wants to see.

    `moments_at` is the position of the checkpoint that the optimizer's moments were taken from,
    0 for none. `counts` are tokens trained by learner step, as the life's words tell them.
    `told_step` and `told_position` are those of the last word that tells adoptions.
    """

    incarnation: int
    joined: LearnerJoined
    moments_at: int = 0
    boundaries: dict[int, Boundary] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    last_step: int = 0
    last_position: int = 0
    told_step: int = 0
    told_position: int = 0

    def is_told(self, position: int, step: int) -> bool:
        """Whether all that moved this life by a checkpoint, said here of this step, is told.

        A life that was cut off leaves adoptions untold that came after its last offer.
        """
        return position < self.told_position or step <= self.told_step

    @property
    def learner(self) -> str:
        """Who lives."""
        return self.joined.learner

    def at(self, step: int) -> Boundary:
        """The boundary after a step, for whoever writes the script."""
        return self.boundaries.setdefault(step, Boundary())


class Batching:
    """How many sequences each step of a life took, from the tokens that its words tell.

    Between two words they are spread over the steps as evenly as whole sequences can be, so a
    constant batch comes out constant. After the last word, when only a checkpoint is known of,
    each step takes a whole batch.
    """

    def __init__(self, counts: Mapping[int, int], context: int, whole: int) -> None:
        self._whole = whole
        self._steps = sorted(counts)
        self._counts = [counts[step] for step in self._steps]
        self._context = context

    def sequences(self, step: int) -> int:
        """Sequences in the step that ends at this boundary. Raises ValueError where none fit."""
        place = bisect_left(self._steps, step)
        assert place > 0, "a life's first step comes after its join"
        if place == len(self._steps):
            return self._whole
        first, last = self._steps[place - 1], self._steps[place]
        tokens = self._counts[place] - self._counts[place - 1]
        if tokens < 0 or tokens % self._context:
            raise ValueError(
                f"between steps {first} and {last} it trained {tokens} tokens, which are no "
                f"whole sequences of {self._context}"
            )
        whole, steps = tokens // self._context, last - first
        taken = whole * (step - first) // steps - whole * (step - first - 1) // steps
        if not 0 < taken <= self._whole:
            raise ValueError(f"step {step} took {taken} sequences, of a batch of {self._whole}")
        return taken
