"""How fast facts are sealed, read, chained and folded, and a whole tape file is: one core's time.

`python -m tests.bench.bench_record 1000000` makes a tape file of so many facts and folds it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from decodiloco.syncer.machine import begin
from replay.refold import next_state
from replay.state import state_at
from streams.chain import Chain
from streams.codec import decode_envelope, encode_envelope, encode_event
from streams.events import Event
from tests.bench.figures import Figure, Target, at_least, seconds_of
from tests.bench.steady_tape import SteadyTape, write
from tests.builders import RUN, offered, opened, tape_of

FACTS = 2000
MIXED = 3000  # of a steady run: 70 % offers, 9 % each of rounds, windows and merges
FILED, FILED_QUICK = 50_000, 6000
TRIES = 20  # goes are short, and a shared machine is slow for seconds at a time


def figures(quick: bool) -> Iterator[Figure]:
    """One figure a stage, then stages together."""
    facts: list[Event] = [opened(), *(offered(said=said) for said in range(1, FACTS))]
    tape = tape_of(facts)

    def chained() -> None:
        chain = Chain(RUN)
        for envelope in tape:
            chain = chain.then(envelope)

    yield _rate("encode an offer", FACTS, lambda: [*map(encode_event, facts)])
    yield _rate("seal a tape", FACTS, lambda: tape_of(facts))
    yield _rate("check a chain", FACTS, chained)
    yield from _of_a_mix(8, at_least(40_000))
    if not quick:
        yield from _of_a_mix(64)
    yield _of_a_file(FILED_QUICK if quick else FILED, 3 if quick else 5)


def _of_a_mix(learners: int, target: Target | None = None) -> Iterator[Figure]:
    """Decoding and folding of what a steady run writes, each alone and together."""
    made = SteadyTape(learners)
    tape = [*islice(made.records(), MIXED)]
    payloads = [encode_envelope(envelope) for envelope in tape]

    def folded() -> None:
        state = begin(made.opening)
        for envelope in tape:
            state = next_state(state, envelope)

    def both() -> None:
        state = begin(made.opening)
        for payload in payloads:
            state = next_state(state, decode_envelope(payload))

    def decoded() -> None:
        for payload in payloads:
            decode_envelope(payload)

    of = f"of {learners} learners"
    yield _rate(f"decode a tape {of}", MIXED, decoded)
    yield _rate(f"fold a tape {of}", MIXED, folded)
    yield _rate(f"decode and fold a tape {of}", MIXED, both, target)


def _of_a_file(facts: int, goes: int) -> Figure:
    """`replay state` of a tape file, folded from its first record."""
    with TemporaryDirectory() as folder:
        path = write(Path(folder), 8, facts)
        seconds = min(seconds_of(lambda: state_at(path).close(), _clock) for _ in range(goes))
    detail = f"{facts:,} facts in {seconds:.2f} s; a million so in {seconds / facts * 1e6:.0f} s"
    name = "record: replay state of a tape file from its start"
    return Figure(name, facts / seconds, "events/s", at_least(33_000), detail)


def _rate(
    name: str, amount: int, work: Callable[[], object], target: Target | None = None
) -> Figure:
    """Events per second of processor time in the best go: work of one thread that never waits."""
    seconds = min(seconds_of(work, _clock) for _ in range(TRIES))
    return Figure(f"record: {name}", amount / seconds, "events/s", target)


_clock = time.process_time


if __name__ == "__main__":
    print(_of_a_file(int(sys.argv[1]), 1))
