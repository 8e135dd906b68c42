"""How a life ends before its run does: its checkpoint, its farewell, and a bound on both.

Knows the life and how to wait for it. It must not know why it ends: signals are the trainer's,
silence is the session's.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from decodiloco.learner.life import Life
from decodiloco.learner.state import LeaveReason, State
from decodiloco.times import FAREWELL_TAPE_SECONDS_MAX
from streams.errors import Failure

CHECKPOINT_SHARE = 0.6  # of that time: the rest is for the farewell, should the store hang


@dataclass(frozen=True, slots=True)
class Farewell:
    """What came of the last words in the time they had.

    `is_kept`: the tape has the farewell, or the inbox has it, where whoever leads next finds it.
    `checkpoint` says what became of that.
    """

    is_kept: bool
    checkpoint: str


def say_farewell(life: Life, reason: LeaveReason, seconds: float) -> Farewell:
    """Stores the inner state, says so, and says farewell: as far as that can be done in time.

    Needs at most `seconds`, whatever store and network do. On the thread that trains, between
    two steps.
    """
    core = life.core
    deadline_seconds = time.monotonic() + seconds

    def is_over() -> bool:
        return core.state.left or bool(core.state.ended_by)

    core.checkpoint()
    core.leave(reason)
    life.ring()
    is_stored = False
    with suppress(Failure):  # what has ended the background was told, or is raised elsewhere
        is_stored = life.wait(lambda: not core.state.checkpointing, CHECKPOINT_SHARE * seconds)
        if not is_stored:
            core.give_up_checkpoint()
            life.ring()
        left_seconds = deadline_seconds - time.monotonic()
        life.wait(lambda: is_over() or life.has_farewell_kept, left_seconds)
        left_seconds = deadline_seconds - time.monotonic()
        life.wait(is_over, min(FAREWELL_TAPE_SECONDS_MAX, left_seconds))
    is_kept = core.state.left or life.has_farewell_kept
    return Farewell(is_kept, _fate_of_checkpoint(core.state, is_stored))


def _fate_of_checkpoint(state: State, is_stored: bool) -> str:
    if state.joined is not None and state.checkpointed_step == state.joined.learner_step:
        return "it had no inner state to store since it joined"
    newest = state.checkpoints.get(state.learner)
    told_step = newest.learner_step if newest is not None else 0
    if not is_stored:
        return f"its inner state of step {state.learner_step} could not be stored"
    if told_step == state.checkpointed_step:
        return f"its checkpoint of step {told_step} is on the tape"
    return f"its checkpoint of step {state.checkpointed_step} is stored, and not on the tape yet"
