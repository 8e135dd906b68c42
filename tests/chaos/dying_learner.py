"""A learner that dies at each point of `POINTS`, one life after another, and then lives on.

Arguments are those of `decodiloco`. A life kills itself by SIGKILL, so nothing of what it had
begun is finished. Each is a fork of one process that has loaded everything.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from decodiloco import cli
from decodiloco.learner import anchors, core, transport
from decodiloco.learner.jobs import OfferJob
from decodiloco.store import local
from streams.events import DeltaOffered, LearnerJoined, Word
from streams.jetstream_inbox import JetStreamInbox

AT_CALL = 3  # a life lives a little before it dies


def die() -> None:
    """As `kill -9` does it: at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number: int, place: Any, name: str, before: Callable[..., object]) -> None:
    """Replaces a function: its n-th call is given to `before`, which does not return."""
    right, calls = getattr(place, name), [0]

    def wrong(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            before(right, *args, **kwargs)
            die()
        return right(*args, **kwargs)

    setattr(place, name, wrong)


def mid_copy() -> None:
    """A boundary's copies are half made, and nobody knows of them."""
    at_call(AT_CALL, anchors.Anchors, "copy", lambda right, *args: right(*args))


def before_word() -> None:
    """The delta is durable in the store, and no word names it."""
    right = core.LearnerCore.done

    def wrong(self: Any, job: Any, result: Any, seconds: float) -> None:
        if isinstance(job, OfferJob) and job.ask.copy.learner_step > 60:
            die()
        right(self, job, result, seconds)

    core.LearnerCore.done = wrong  # type: ignore[method-assign]


def unacknowledged(kind: type[Word], number: int) -> None:
    """The inbox has the word; whoever said it dies before it is told so."""
    right, calls = JetStreamInbox.say, [0]

    async def wrong(self: JetStreamInbox, word: Word) -> int:
        sequence = await right(self, word)
        calls[0] += isinstance(word, kind)
        if calls[0] == number:
            die()
        return sequence

    JetStreamInbox.say = wrong  # type: ignore[method-assign]


def mid_adoption() -> None:
    """Some tensors of the model are overwritten, others are not."""

    def half(_right: Any, parameters: Any, merged: Any, alpha: float) -> None:
        name = next(iter(merged))
        parameters[name].data.fill_(0.0)

    # One load a fragment at the join, then adoptions.
    at_call(4 + AT_CALL, anchors, "write", half)


def mid_checkpoint() -> None:
    """A checkpoint is half on the disk."""

    def half(_right: Any, path: Path, views: Sequence[memoryview], _size: int) -> None:
        path.with_name(f".half-{os.getpid()}").write_bytes(bytes(views[0])[:9])

    right = local._write

    def wrong(path: Path, views: Sequence[memoryview], size_bytes: int) -> int:
        if "/checkpoint/" in str(path):
            half(right, path, views, size_bytes)
            die()
        return right(path, views, size_bytes)

    local._write = wrong


def mid_join() -> None:
    """The tape says that it has joined; it never trains a step."""
    right = transport.Transport.join

    async def wrong(self: Any, *args: Any) -> None:
        await right(self, *args)
        die()

    transport.Transport.join = wrong  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "mid copy": mid_copy,
    "upload done, no word": before_word,
    "word unacknowledged": lambda: unacknowledged(DeltaOffered, AT_CALL),
    "join unacknowledged": lambda: unacknowledged(LearnerJoined, 1),
    "joined, no step": mid_join,
    "mid adoption": mid_adoption,
    "mid checkpoint": mid_checkpoint,
}

if __name__ == "__main__":
    import decodiloco.training.trainer  # noqa: F401  (loaded once, for all lives)

    for point, plant in POINTS.items():
        child = os.fork()
        if child == 0:
            plant()
            cli.main()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"the life that was to die at {point!r} ended with status {status}")
        print(f"died: {point}", flush=True)
    cli.main()
