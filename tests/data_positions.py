"""Which batches of its data each merged offer holds, told by cursors, steps and lives alone.

For the built-in trainer, whose cursor counts batches and which takes one a step. Knows facts and
nothing of the production machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streams.codec import unpack
from streams.envelope import Envelope
from streams.events import DeltaOffered, FragmentMerged, LearnerJoined, LearnerLeft
from streams.parts import CURSOR_BYTES_MAX


@dataclass(frozen=True)
class Life:
    """Where a life began: its learner's step, and the batch of its data that came next."""

    step: int
    batch: int

    def batches(self, begin_step: int, end_step: int) -> range:
        """What it trained between two of its steps."""
        return range(begin_step - self.step + self.batch, end_step - self.step + self.batch)


def check_data(tape: Sequence[Envelope], per_pass: Mapping[str, int]) -> dict[str, int]:
    """Batches that were merged, by learner. Fails where one is merged twice into a fragment.

    Every word's cursor, too, must be that of its step. `per_pass`: batches in a pass of each
    learner's shard.
    """
    lives: dict[int, Life] = {}
    offers: dict[int, DeltaOffered] = {}
    merged: dict[tuple[str, int], set[int]] = {}
    for envelope in tape:
        event = envelope.event
        match event:
            case LearnerJoined():
                batch = _batch(event.cursor, per_pass[event.learner])
                lives[envelope.position] = Life(event.learner_step, batch)
            case DeltaOffered() | LearnerLeft():
                life = lives[event.incarnation]
                (next_batch,) = life.batches(event.learner_step, event.learner_step + 1)
                told = _batch(event.cursor, per_pass[event.learner])
                assert told == next_batch, envelope
                if isinstance(event, DeltaOffered):
                    offers[envelope.position] = event
            case FragmentMerged():
                for position in event.contributions:
                    offer = offers[position]
                    held = merged.setdefault((offer.learner, offer.fragment), set())
                    begin = offer.learner_step - offer.inner_steps
                    new = lives[offer.incarnation].batches(begin, offer.learner_step)
                    again = held & set(new)
                    assert not again, f"{sorted(again)[:9]} of {offer.learner} are merged twice"
                    held |= set(new)
            case _:
                pass
    counts: dict[str, int] = {}
    for (learner, _), batches in merged.items():
        counts[learner] = counts.get(learner, 0) + len(batches)
    return counts


def _batch(cursor: bytes, per_pass: int) -> int:
    """The number of the next batch, from the first of the first pass on."""
    if not cursor:
        return 0
    told = unpack(cursor, CURSOR_BYTES_MAX)
    return int(told["pass"]) * per_pass + int(told["batch"])
