"""`replay verify` as a process against a run that somebody laid hands on: it names the place.

Places are drawn by a seed, which is told when one of them is not found out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decodiloco.store.open_store import open_store
from replay.tape_file import MAGIC
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    Event,
    FragmentMerged,
    LearnerJoined,
    MergeAbandoned,
    RoundOpened,
    WindowClosed,
)
from streams.framing import LENGTH
from tests.chaos.tampering import (
    Pieces,
    changed,
    linked_copy,
    named_blobs,
    place_in,
    put,
    replay,
    told_by,
)
from tests.real_run import RealRun
from tests.unit.test_replay_verify import rewritten, with_fields

SEED = 20261129
PLACES_IN_EACH_KIND = 4
PLACES_IN_THE_TAPE = 24
KINDS = ("checkpoint", "delta", "global", "momentum", "opening", "report", "snapshot")
AT_ONCE = 2

Case = tuple[str, Path, str | None]  # what was done, to which place, and the key to be named

pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that nobody touched; tests change copies of its folder."""
    folder = tmp_path_factory.mktemp("tampering")
    run = RealRun(open_store((folder / "store").as_uri())).play()
    run.save_tape(folder / "run.tape")
    return run


def folder_of(run: RealRun) -> Path:
    return Path(run.store.url.removeprefix("file://")).parent


def pieces_of(run: RealRun) -> Pieces:
    return Pieces.of((folder_of(run) / "run.tape").read_bytes())


def check_found_out(cases: Iterable[Case]) -> None:
    """Each case exits with 1 and names its key, or else the position."""

    def verified(case: Case) -> tuple[Case, int, dict[str, Any]]:
        done = replay("verify", case[1], "--json")
        return case, done.returncode, told_by(done)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (what, _, key), code, told in pool.map(verified, cases):
            found = told["first_difference"]
            where = f"{what}, seed {SEED}: {told}"
            assert code == 1 and found is not None and not told["ok"], where
            assert found["key"] == key if key else found["position"] is not None, where


def changed_blobs(folder: Path, aside: Path, kinds: Iterable[str], each: int) -> Iterable[Case]:
    """Copies of a run folder, each with one byte changed in one blob that the tape names."""
    chance = random.Random(SEED)
    named = named_blobs(folder)
    assert sorted(named) == sorted(KINDS)
    for kind in kinds:
        for number in range(each):
            part = ("header", "payload")[number % 2]
            key = chance.choice(named[kind])
            copy = linked_copy(folder, aside / f"{kind}-{number}")
            whole = (copy / "store" / key).read_bytes()
            at = place_in(kind, whole, part, chance)
            put(copy / "store" / key, changed(whole, at, chance))
            yield f"byte {at} of {len(whole)} of {key}", copy / "run.tape", key


def changed_tapes(folder: Path, aside: Path, places: Iterable[int]) -> Iterable[Case]:
    """Copies of a run folder, each with one byte changed in its tape."""
    chance = random.Random(SEED)
    whole = (folder / "run.tape").read_bytes()
    for at in places:
        copy = linked_copy(folder, aside / f"tape-{at}")
        put(copy / "run.tape", changed(whole, at, chance))
        yield f"byte {at} of {len(whole)} of the tape", copy / "run.tape", None


def test_a_run_that_nobody_touched_exits_with_zero_and_every_merge_is_made_again(
    run: RealRun,
) -> None:
    done = replay("verify", folder_of(run), "--json")

    told = told_by(done)
    merges = sum(isinstance(each.event, FragmentMerged) for each in run.tape)
    assert (done.returncode, told["ok"], told["first_difference"]) == (0, True, None)
    assert told["merges"] == told["merges_checked"] == merges > 8


@pytest.mark.long
def test_a_changed_byte_in_any_kind_of_blob_is_named_by_its_key(
    run: RealRun, tmp_path: Path
) -> None:
    check_found_out(changed_blobs(folder_of(run), tmp_path, KINDS, PLACES_IN_EACH_KIND))


@pytest.mark.long
def test_a_changed_byte_anywhere_in_the_tape_is_named_by_its_position(
    run: RealRun, tmp_path: Path
) -> None:
    pieces = pieces_of(run)
    size, header = len(pieces.joined()), len(pieces.header)
    seal, middle = size - len(pieces.seal), len(pieces.records) // 2
    length = sum(map(len, (pieces.header, *pieces.records[:middle])))
    parts = {
        "magic": (0, len(MAGIC) - 1),
        "version and length": (len(MAGIC), len(MAGIC) + 2, len(MAGIC) + 2 + LENGTH.size - 1),
        "name and store": (len(MAGIC) + 9, header - 1),
        "lengths": (header, header + 3, length, length + 2, length + 3),
        "seal": (seal, seal + 4, seal + 11, seal + 12, seal + 44, size - 1),
    }
    chance = random.Random(SEED)
    places = {at for part in parts.values() for at in part}
    while len(places) < sum(map(len, parts.values())) + PLACES_IN_THE_TAPE:
        places.add(chance.randrange(size))

    check_found_out(changed_tapes(folder_of(run), tmp_path, sorted(places)))


Edit = Callable[[Pieces], Pieces]


def without(index: int) -> Edit:
    return lambda it: replace(it, records=tuple(_but(it.records, index)))


def _but(records: tuple[bytes, ...], index: int) -> list[bytes]:
    left = list(records)
    del left[index]
    return left


def swapped(one: int, other: int) -> Edit:
    def edit(it: Pieces) -> Pieces:
        records = list(it.records)
        records[one], records[other] = records[other], records[one]
        return replace(it, records=tuple(records))

    return edit


EDITS: dict[str, Edit] = {
    "the first record removed": without(0),
    "a middle record removed": without(40),
    "the last but one removed": without(-2),
    "two neighbours swapped": swapped(30, 31),
    "two far ones swapped": swapped(5, 60),
    "the last one twice": lambda it: replace(it, records=(*it.records, it.records[-1])),
    "an early one again at the end": lambda it: replace(it, records=(*it.records, it.records[9])),
}


def test_records_removed_swapped_or_added_are_found_out_with_the_old_seal_and_a_new_one(
    run: RealRun, tmp_path: Path
) -> None:
    whole = pieces_of(run)
    files = {f"{what}, old seal": edit(whole).joined() for what, edit in EDITS.items()}
    files |= {f"{what}, new seal": edit(whole).sealed() for what, edit in EDITS.items()}
    files |= {
        "the last record removed": without(-1)(whole).joined(),
        "the seal removed": replace(whole, seal=b"").joined(),
        "the seal cut": whole.joined()[:-1],
        "the file cut in a record": whole.joined()[: -len(whole.seal) - 7],
        "a byte after the seal": whole.joined() + b"\0",
        "a record after the seal": whole.joined() + whole.records[-1],
        "a seal after the seal": whole.joined() + whole.seal,
        "no record at all": replace(whole, records=()).joined(),
    }

    def cases() -> Iterable[Case]:
        for number, (what, data) in enumerate(files.items()):
            copy = linked_copy(folder_of(run), tmp_path / str(number))
            put(copy / "run.tape", data)
            yield what, copy / "run.tape", None

    check_found_out(cases())


Forgery = Callable[[Envelope], Event]


def of_a_merged_offer(run: RealRun, **fields: object) -> Forgery:
    """Changes these fields of the last offer that is in a merge."""
    merges = [each.event for each in run.tape if isinstance(each.event, FragmentMerged)]
    position = max(place for merge in merges for place in merge.contributions)

    def change(envelope: Envelope) -> Event:
        if envelope.position != position:
            return envelope.event
        return envelope.event.model_copy(update=fields)

    return change


def test_facts_that_were_altered_and_chained_and_sealed_anew_are_found_out(
    run: RealRun, tmp_path: Path
) -> None:
    forgeries: dict[str, Forgery] = {
        "a weight's tokens": of_a_merged_offer(run, tokens=599),
        "a weight's steps": of_a_merged_offer(run, inner_steps=5),
        "an offer's step": of_a_merged_offer(run, learner_step=23),
        "an offer's learner": of_a_merged_offer(run, learner="b"),
        "who is in a window": with_fields(WindowClosed, offers=(9, 10)),
        "a window's reason": with_fields(WindowClosed, reason="grace is over"),
        "a round's tokens": with_fields(RoundOpened, tokens=7),
        "a merge's members in another order": with_fields(
            FragmentMerged, contributions=tuple(reversed(first_members(run)))
        ),
        "why an offer was left out": left_out_because(run, "lying header: layer0.bias"),
        "why a merge was abandoned": with_fields(MergeAbandoned, left_out=()),
        "a learner's slot": with_fields(LearnerJoined, slot=3),
        "a loss, before a snapshot": with_fields(DeltaOffered, loss=3.0),
    }

    def cases() -> Iterable[Case]:
        for number, (what, forgery) in enumerate(forgeries.items()):
            copy = linked_copy(folder_of(run), tmp_path / str(number))
            (copy / "run.tape").unlink()
            rewritten(run, copy / "run.tape", forgery)
            assert (copy / "run.tape").read_bytes() != pieces_of(run).joined(), what
            yield what, copy / "run.tape", None

    check_found_out(cases())


def first_members(run: RealRun) -> tuple[int, ...]:
    return next(
        each.event.contributions for each in run.tape if isinstance(each.event, FragmentMerged)
    )


def left_out_because(run: RealRun, reason: str) -> Forgery:
    """Changes the reason of the first offer that a merge left out for its own bytes."""

    def change(envelope: Envelope) -> Event:
        event = envelope.event
        if not isinstance(event, FragmentMerged) or not event.left_out:
            return event
        told = tuple(
            each.model_copy(update={"reason": reason}) if "finite" in each.reason else each
            for each in event.left_out
        )
        return event.model_copy(update={"left_out": told})

    return change


@pytest.mark.long
def test_a_real_demo_that_was_tampered_with_is_found_out(
    finished_demo: Path, tmp_path: Path
) -> None:
    done = replay("verify", finished_demo, "--json")
    assert done.returncode == 0, done.stdout
    assert told_by(done)["merges"] == told_by(done)["merges_checked"] >= 24

    check_found_out(changed_blobs(finished_demo, tmp_path / "blobs", KINDS, 1))
    whole = (finished_demo / "run.tape").read_bytes()
    name = whole.index(b"demo", len(MAGIC))
    chance = random.Random(SEED)
    places = [name, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(4))]
    check_found_out(
        (what, tape.parent, key)  # the whole folder, with its run.toml
        for what, tape, key in changed_tapes(finished_demo, tmp_path / "tapes", places)
    )
