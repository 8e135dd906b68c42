"""One learner as the rounds see it: its steps on its stretches, and the fate of its tokens.

A token is a full step of all slices; each counts once for each fragment, since each fragment of
it is merged, overwritten or left out by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay.goodput.learner import Stretches
from replay.goodput.settings import Sync


@dataclass(slots=True)
class _Copy:
    """What was copied to be offered: all tokens since the last adoption, up to then."""

    number: int
    base_tokens: float
    tokens: float
    steps: float
    at_tokens: float


@dataclass(slots=True)
class _Fragment:
    """A learner's books for one fragment; marks are totals at the last adoption."""

    mark_tokens: float = 0.0
    mark_steps: float = 0.0
    out: _Copy | None = None  # copied, under way
    inbox: _Copy | None = None  # offered, not merged yet
    covered: float = 0.0  # tokens up to which something was copied since the mark
    blocked: bool = False  # merged, but not adopted


class Trainee:
    """Asked and told by the world of rounds, one moment after another."""

    def __init__(
        self, stretches: Stretches, step_seconds: float, sync: Sync, draws: Iterator[float]
    ) -> None:
        self.stretches, self.step_seconds, self.sync = stretches, step_seconds, sync
        self.draws = draws
        self.index = 0  # the stretch we are in or come to next
        self.begun = 0.0  # when the step in progress began
        self.fraction = 0.0  # the part of a step that it comes to (a failure may cut it)
        self.steps = self.tokens = self.waited = 0.0
        self.fragments = [_Fragment() for _ in range(sync.fragments)]
        self.handed: list[int] = []
        self.held: float | None = None  # standing still since
        self.last_adoption = 0.0
        self.done = dict.fromkeys(("merged", "overwritten", "left_out"), 0.0)

    def first_boundary(self) -> float:
        """The end of the first step."""
        boundary = self._step_from(0.0)
        return float("inf") if boundary is None else boundary

    def arrive(self, now: float) -> None:
        """The step in progress is done; fragments that were handed in are adopted."""
        self.steps += self.fraction
        self.tokens += self.fraction * self.stretches.shares[self.index]
        self._adopt(now)

    def next_boundary(self, now: float) -> float | None:
        """The end of the next step; None when it waits for a merge, or its life is over."""
        allowed = self.sync.run_on_seconds
        if allowed is not None and now - self.last_adoption >= allowed:
            self.held = now
            return None
        return self._step_from(now)

    def hand(self, fragment: int, now: float) -> bool:
        """A merged fragment has arrived; True when the learner stood still for want of one."""
        self.handed.append(fragment)
        if self.held is None:
            return False
        self.waited += self._stepping_between(self.held, now)
        self.held = None
        self._adopt(now)
        return True

    def is_stepping(self, now: float) -> bool:
        """Whether it is up: in a step, or held between two."""
        if self.index >= len(self.stretches.begins):
            return False
        return self.stretches.begins[self.index] <= now < self.stretches.ends[self.index]

    def unanswered(self, unmerged: Sequence[int]) -> list[int]:
        """The open rounds that it has not answered yet."""
        return [n for n in unmerged if self.fragments[n % self.sync.fragments].out is None]

    def copy(self, number: int, fragment: int) -> bool:
        """Copies a fragment as it stood at the last boundary; False when there is nothing new."""
        books = self.fragments[fragment]
        tokens, steps = self.tokens - books.mark_tokens, self.steps - books.mark_steps
        answered = books.inbox is not None and books.inbox.number == number
        if books.blocked or books.out is not None or answered or steps <= 0.0:
            return False
        books.out = _Copy(number, books.mark_tokens, tokens, steps, self.tokens)
        return True

    def offered(self, number: int, fragment: int) -> None:
        """The copy has been stored and offered; an older one of the same work gives way."""
        books = self.fragments[fragment]
        assert books.out is not None and books.out.number == number
        if books.inbox is not None and books.inbox.base_tokens < books.out.base_tokens:
            # The older offer is from before the last adoption: its work stands beside this one's.
            books.out.tokens += books.inbox.tokens
            books.out.steps += books.inbox.steps
        books.inbox = books.out
        books.covered = books.out.at_tokens
        books.out = None

    def merge(self, fragment: int) -> float:
        """Takes what it has offered of this fragment into a merge; its weight, or 0."""
        books = self.fragments[fragment]
        if books.inbox is None:
            return 0.0
        taken, books.inbox = books.inbox, None
        self.done["merged"] += taken.tokens
        books.blocked = True
        return taken.tokens * taken.tokens / taken.steps

    def fates(self) -> dict[str, float]:
        """Tokens by fate over all fragments; they add up to tokens trained times P."""
        counted = sum(self.done.values())
        return {**self.done, "open": max(0.0, self.tokens * self.sync.fragments - counted)}

    def _adopt(self, now: float) -> None:
        for fragment in self.handed:
            self.last_adoption = now
            books = self.fragments[fragment]
            covered = max(books.covered, books.out.at_tokens if books.out else 0.0)
            since = max(books.mark_tokens, covered)
            kind = "overwritten" if covered > books.mark_tokens else "left_out"
            self.done[kind] += self.tokens - since
            books.mark_tokens, books.mark_steps = self.tokens, self.steps
            books.blocked = False
        self.handed.clear()

    def _step_from(self, now: float) -> float | None:
        """Begins a step at `now`, or where the next stretch begins; a failure may cut it short."""
        ends = self.stretches.ends
        while self.index < len(ends) and ends[self.index] - now <= 1e-9:
            self.index += 1
        if self.index >= len(ends):
            return None
        self.begun = max(now, self.stretches.begins[self.index])
        drawn = 1.0
        if self.sync.jitter:
            drawn += self.sync.jitter * (2.0 * next(self.draws) - 1.0)
        length = self.step_seconds * drawn
        end = min(self.begun + length, ends[self.index])
        self.fraction = (end - self.begun) / length
        return end

    def _stepping_between(self, begin: float, end: float) -> float:
        """Seconds in which it could have trained, by the share of its slices."""
        total, index = 0.0, self.index
        stretches = self.stretches
        while index < len(stretches.begins) and stretches.begins[index] < end:
            inside = min(end, stretches.ends[index]) - max(begin, stretches.begins[index])
            total += max(0.0, inside) * stretches.shares[index]
            index += 1
        return total
