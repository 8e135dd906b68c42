"""A tensor merged and stepped: the exact arithmetic beside the obvious one in torch, in memory.

Ours is what a merge does with one tensor: sums of squares told by headers and counted on the way,
one pass over the deltas, the outer step. Reading the same bytes once is the third to take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt
import torch

from decodiloco.merge import adding
from decodiloco.merge.compiled import Coded
from decodiloco.merge.crew import Crew
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats, square_sum
from decodiloco.merge.places import Whole, pieces
from decodiloco.merge.rules import Clipping, Rule, length_of, plan_merge
from decodiloco.store.aside import HELD_BYTES_MAX, Memory
from decodiloco.store.codecs import decode, to_bf16
from tests.bench.figures import Figure, at_least, at_most, interleaved

MILLION = 1 << 20
LEARNERS = {1: (2, 4, 8, 16), 8: (2, 4, 8, 16), 32: (2, 16), 100: (4,)}
"""How many deltas, by millions of elements: torch holds three copies of them."""

MEAN_MILLIONS_MAX = 8
RATES = (0.7, 0.9)


@dataclass(frozen=True, slots=True)
class Case:
    """One tensor of `learners` deltas, and how it is merged."""

    rule: Rule
    codec: str
    learners: int
    millions: int
    threads: int

    def __str__(self) -> str:
        told = f"{self.rule} {self.codec} {self.learners} x {self.millions} M"
        return f"{told}, {self.threads} thread{'s' * (self.threads > 1)}"


def figures(quick: bool) -> Iterator[Figure]:
    """Two figures a case: the time as a share of torch's, and the rate as one of reading's."""
    for case in _cases(quick):
        yield from _figures_of(case, goes=3 if quick or case.millions > 8 else 5)


def _cases(quick: bool) -> Iterator[Case]:
    """The radial rule, and the mean of what is not large, so that the room fits into its time.

    Cases of the same deltas come together.
    """
    for millions, learners in ({8: (2, 8)} if quick else LEARNERS).items():
        for count, codec, threads in product(learners, ("bf16", "fp32"), (1, 2)):
            yield Case("radial", codec, count, millions, threads)
            if millions <= MEAN_MILLIONS_MAX:
                yield Case("mean", codec, count, millions, threads)


def _figures_of(case: Case, goes: int) -> Iterator[Figure]:
    arrays = Arrays.drawn(case.codec, case.learners, case.millions * MILLION)
    pool = ThreadPoolExecutor(case.threads)
    crew = Crew(pool, case.threads) if case.threads > 1 else Crew()
    torch.set_num_threads(case.threads)
    taken = interleaved(
        {
            "ours": arrays.merging(case.rule, crew),
            "torch": _obvious(case, arrays),
            "read": lambda: list(pool.map(np.max, arrays.split(case.threads))),
        },
        goes,
        time.process_time if case.threads == 1 else time.perf_counter,
    )
    pool.shutdown()
    ours, other, read = taken["ours"], taken["torch"], taken["read"]
    yield Figure(
        f"merge: {case}", ours.over(other), "of torch", at_most(0.2),
        f"{1e3 * ours.least:.1f} ms, torch {1e3 * other.least:.1f} ms",
    )  # fmt: skip
    rate = arrays.nbytes / ours.least / 1e9
    told = f"{rate:.1f} GB/s, reading {arrays.nbytes / read.least / 1e9:.1f}"
    yield Figure(f"merge: {case}", read.over(ours), "of reading", at_least(0.2), told)


@dataclass(frozen=True, slots=True)
class Arrays:
    """What one tensor's merge reads."""

    deltas: list[Coded]
    parameter: Floats
    momentum: Floats

    @classmethod
    @lru_cache(maxsize=1)
    def drawn(cls, codec: str, learners: int, size: int) -> Arrays:
        draw = np.random.default_rng(0)
        floats = [draw.standard_normal(size, np.float32) for _ in range(learners + 2)]
        *deltas, parameter, momentum = floats
        coded = [to_bf16(delta) for delta in deltas] if codec == "bf16" else deltas
        return cls([*coded], parameter, momentum)

    @property
    def nbytes(self) -> int:
        return sum(delta.nbytes for delta in self.deltas) + 2 * self.parameter.nbytes

    def split(self, threads: int) -> list[npt.NDArray[np.uint32]]:
        """All of them as words of 32 bits, each in as many parts as there are threads."""
        words = [each.view(np.uint32) for each in (*self.deltas, self.parameter, self.momentum)]
        return [part for each in words for part in np.array_split(each, threads)]

    def merging(self, rule: Rule, crew: Crew) -> Callable[[], object]:
        """The work of merging these and of the outer step."""
        weights = [Fraction(1 + place) for place in range(len(self.deltas))]
        squares = [square_sum(_decoded(delta)) for delta in self.deltas]

        def merge() -> object:
            plan = plan_merge(rule, weights, squares, Clipping(None))
            streams = [_streamed(delta) for delta in self.deltas]
            made = Whole(_room(self.parameter.nbytes)), Whole(_room(self.parameter.nbytes))
            sums, _ = adding.add_up(streams, plan, made[1], crew)
            assert list(sums.found) == squares
            factor, _ = length_of(plan, sums)
            before = pieces(self.parameter), pieces(self.momentum)
            adding.step(*before, made, factor, RATES, crew)
            return made

        return merge


def _room(nbytes: int) -> Floats:
    """Memory for a result as a merge has it: lent again, merge after merge, if it is not long."""
    if nbytes <= HELD_BYTES_MAX:
        return Memory(nbytes).lend(0, nbytes).view(np.float32)
    return np.empty(nbytes // 4, np.float32)


def _obvious(case: Case, arrays: Arrays) -> Callable[[], object]:
    """What one would write: a stack, norms and directions, and torch's own optimizer."""
    weights = torch.arange(1.0, 1.0 + case.learners)
    shares = (weights / weights.sum())[:, None]
    held = torch.from_numpy(arrays.parameter.copy())
    optimizer = torch.optim.SGD([held], lr=RATES[0], momentum=RATES[1], nesterov=True)
    optimizer.state[held]["momentum_buffer"] = torch.from_numpy(arrays.momentum.copy())
    offered = [torch.from_numpy(delta) for delta in arrays.deltas]
    if case.codec == "bf16":
        offered = [words.view(torch.bfloat16) for words in offered]

    def merge() -> object:
        stack = torch.stack(offered).float()
        if case.rule == "mean":
            gradient = (shares * stack).sum(0)
        else:
            norms = stack.norm(dim=1, keepdim=True)
            direction = (shares * (stack / norms)).sum(0)
            gradient = direction / direction.norm() * (shares * norms).sum()
        held.grad = gradient
        optimizer.step()
        return held

    return merge


def _streamed(delta: Coded) -> Iterator[Coded]:
    for start in range(0, len(delta), CHUNK_ELEMENTS):
        yield delta[start : start + CHUNK_ELEMENTS]


def _decoded(delta: Coded) -> Floats:
    return decode(delta.data, "fp32" if delta.dtype == np.float32 else "bf16")
