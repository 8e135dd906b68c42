"""How time and bytes grow: measured at several sizes, fitted, and put into a page.

    python -m tests.bench.growth           measure, write growth.json, fill the page
    python -m tests.bench.growth --page    fill the page from the growth.json that is there

Times are seconds of the processor, all threads of this process, the least of several goes in turns:
other work on the machine changes them least. Bytes are counted, and the same on any machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from decodiloco.merge.crew import Crew
from decodiloco.merge.fragment import Merged, merge_fragment
from decodiloco.opening import Opening
from decodiloco.store.open_store import open_store
from decodiloco.syncer import drafting
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import encode_state, state_digest
from decodiloco.syncer.state import State
from replay.study.page import filled
from replay.synthetic.cluster import Cluster
from replay.synthetic.records import synthetic_records
from streams.codec import decode_envelope, encode_envelope, encode_event
from streams.envelope import Envelope
from streams.events import DeltaOffered, Event, FragmentMerged, learner_of
from streams.inbox import Letter
from tests.bench import bench_bytes
from tests.bench.__main__ import machine
from tests.bench.bench_merge import MILLION, Arrays
from tests.bench.figures import seconds_of
from tests.bench.growth_laws import Point
from tests.bench.growth_page import pictures_of, tables_of
from tests.bench.stored import order_of, put_all
from tests.desk import opening_of
from tests.tidy.house import ROOT

PAGE = ROOT / "docs" / "explanation" / "growth.md"
TAKEN = PAGE.with_suffix("") / "growth.json"

ADDED = ((1, 4), (2, 4), (4, 2), (4, 4), (4, 8), (4, 16), (16, 4))  # M of elements, deltas
STORED = ((8, 4), (32, 2), (32, 4), (32, 8), (32, 16), (128, 4))  # MB, deltas
RUNS = tuple((learners, fragments) for learners in (2, 8, 32) for fragments in (4, 8, 24))
LENGTHS = (50, 200, 800)  # merges
GOES = 5
OFFERS_MAX = 400


@dataclass(slots=True)
class Case:
    """One point: its sizes and what was counted, and works to be timed, each with what it does."""

    point: Point
    works: dict[str, tuple[Callable[[], object], int]] = field(default_factory=dict)


def measured() -> dict[str, list[Point]]:
    """Everything that the page's fits are made of."""
    with tempfile.TemporaryDirectory() as folder:
        merges = {
            "added": [_added(*each) for each in ADDED],
            "stored": [_stored(Path(folder), *each) for each in STORED],
        }
        taken = _timed(merges)
    records = {
        "record": [_recorded(*each, merges=max(48, 3 * each[1])) for each in RUNS],
        "events": [_recorded(4, 8, merges) for merges in LENGTHS],
    }
    return {**taken, "moved": [_moved(learners) for learners in (2, 4, 8)], **_timed(records)}


def _timed(rooms: Mapping[str, Sequence[Case]]) -> dict[str, list[Point]]:
    """Their points with the least seconds of each work; all works take turns, go by go.

    A machine that is slower for a while is so for all sizes, and not for one.
    """
    works = [
        (case.point, name, work, count)
        for cases in rooms.values()
        for case in cases
        for name, (work, count) in case.works.items()
    ]
    gc.collect()
    gc.freeze()  # what the other cases hold is not walked in the time of this one
    for go in range(GOES + 1):  # the first fills the caches
        for point, name, work, count in works:
            seconds = seconds_of(work, time.process_time) / count
            if go:
                point[name] = min(seconds, point.get(name, math.inf))
    gc.unfreeze()
    return {room: [case.point for case in cases] for room, cases in rooms.items()}


def _added(millions: int, learners: int) -> Case:
    """One tensor of bf16 deltas in memory: summed, given its length, stepped."""
    merge = Arrays.drawn("bf16", learners, millions * MILLION).merging("radial", Crew())
    point: Point = {"parameters": millions * MILLION, "learners": learners}
    return Case(point, {"seconds": (merge, 1)})


def _stored(folder: Path, megabytes: int, learners: int) -> Case:
    """A whole merge from files: read, check, merge, step, digest, store; deltas in float32."""
    store = open_store((folder / f"{megabytes}-{learners}").as_uri())
    order = order_of(put_all(store, learners, megabytes))

    def merge() -> None:
        made = merge_fragment(order, store)
        assert isinstance(made, Merged)
        for key, parts in made.blobs(order):
            store.put(key, parts)

    parameters = sum(tensor.elements for tensor in order.tensors)
    return Case({"parameters": parameters, "learners": learners}, {"seconds": (merge, 1)})


def _moved(learners: int) -> Point:
    """What a learner's blobs come to in a run that trains a small model: headers and all."""
    counted = bench_bytes.counted("bf16", learners)
    return {
        "learners": learners,
        "sent_bytes": counted.deltas,
        "fetched_bytes": counted.fragments,
        "checkpoint_bytes": counted.checkpoints,
    }


def _recorded(learners: int, fragments: int, merges: int) -> Case:
    """A run of so many learners and fragments, told by the production machines; no tensor moves."""
    opening = opening_of(
        fragments, inner_steps=fragments, learners_min=learners, end={"steps": merges},
        merge={"tokens_per_step_max": 2**24},
    )  # fmt: skip
    tape = synthetic_records(opening, Cluster((1.0,) * learners), seed=0)
    payloads = [encode_envelope(envelope) for envelope in tape]
    states = _states(opening, tape)
    merging = _before(FragmentMerged, tape, states)
    heard = [
        len(payload)
        for envelope, payload in zip(tape, payloads, strict=True)
        if learner_of(envelope.event) in (None, "l00")
    ]
    point: Point = {
        "learners": learners,
        "fragments": fragments,
        "events": len(tape),
        "merges": len(merging),
        "tape_bytes": sum(map(len, payloads)) / len(merging),
        "heard_bytes": sum(heard) / len(merging),
    }
    merging = merging[fragments:]  # each fragment has a version by then
    point["snapshot_bytes"] = sum(len(encode_state(state)) for state in merging) / len(merging)
    return Case(
        point,
        {
            "decode_seconds": (lambda: [*map(decode_envelope, payloads)], len(tape)),
            "fold_seconds": (lambda: reduce(fold, tape, begin(opening)), len(tape)),
            "digest_seconds": (lambda: [*map(state_digest, merging)], len(merging)),
            "admit_seconds": _admission(tape, states),
        },
    )


def _states(opening: Opening, tape: list[Envelope]) -> list[State]:
    """The state before each record, and after the last."""
    states = [begin(opening)]
    for envelope in tape:
        states.append(fold(states[-1], envelope))
    return states


def _before(kind: type[Event], tape: list[Envelope], states: list[State]) -> list[State]:
    told = zip(states, tape, strict=False)
    return [state for state, envelope in told if isinstance(envelope.event, kind)]


def _admission(tape: list[Envelope], states: list[State]) -> tuple[Callable[[], object], int]:
    """The last offers' way from a letter to a fact, sealed and folded, as a leader does it."""
    work: list[tuple[State, Draft, Pen, Envelope]] = []
    for envelope, state in zip(tape, states, strict=False):
        if isinstance(envelope.event, DeltaOffered) and envelope.source is not None:
            word = envelope.event
            letter = Letter(envelope.source, word.learner, word.kind, encode_event(word))
            draft = drafting.from_letter(letter, lambda *_: None)
            work.append((state, draft, Pen(envelope.writer, envelope.fence), envelope))
    work = work[-OFFERS_MAX:]

    def admit() -> None:
        for state, draft, pen, envelope in work:
            assert compose(state, [draft], pen, envelope.time_seconds) == [envelope]

    return admit, len(work)


def main() -> None:
    """Measures, unless only the page is wanted, and fills the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth")
    parser.add_argument("--page", action="store_true", help="only fill the page again")
    if not parser.parse_args().page:
        taken = {"machine": machine(), **measured()}
        TAKEN.parent.mkdir(exist_ok=True)
        TAKEN.write_text(json.dumps(taken, indent=1) + "\n", encoding="utf-8")
    told = json.loads(TAKEN.read_text(encoding="utf-8"))
    for name, picture in pictures_of(told).items():
        (TAKEN.parent / f"{name}.svg").write_text(picture, encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables_of(told), "growth"), "utf-8")
    print(f"{PAGE.relative_to(ROOT)} is filled from {TAKEN.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
