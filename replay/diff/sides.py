"""Tapes as they are opened for a comparison: also one that is still written, or broken further on.

Must not decide what differs; it reads two places, and says what could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from replay.diff.walk import Side
from replay.errors import TapeCorrupt
from replay.place import Place
from replay.progress import Tell
from replay.reach import EVERYTHING, Reach
from replay.state import opened_by, read_opening
from replay.tape_file import Scan, open_file
from streams.envelope import Envelope
from streams.errors import Corrupt, Failure
from streams.events import RunOpened

OPEN = "no seal yet: it is still being recorded, or its recorder was killed"


@dataclass(slots=True)
class Reading:
    """One place while it is read. `notes`: what a person should know; `broken`: where it ends."""

    place: Place
    opened: RunOpened
    records: Iterator[Envelope]
    opening: Opening | None = None
    store: BlobStore | None = None
    notes: list[str] = field(default_factory=list)
    broken: str = ""

    def side(self, tell: Tell) -> Side:
        """The tape as the comparison reads it."""
        return Side(self._until_broken(tell), self.opening, self.place.run)

    def reach(self) -> Reach:
        """How far back its bytes are kept, as its tape says by now, so far as that can be read."""
        reach = EVERYTHING
        with suppress(Corrupt):
            for envelope in records_of(self.place, []):
                reach = reach.then(envelope)
        return reach

    def close(self) -> None:
        """Lets go of the store."""
        if self.store is not None:
            self.store.close()

    def _until_broken(self, tell: Tell) -> Iterator[Envelope]:
        """The records that can be read; a broken one ends them, and is told."""
        try:
            for envelope in self.records:
                tell(envelope.position, 0)
                yield envelope
        except Corrupt as error:
            self.broken = str(error)


def read_places(one: Place, other: Place) -> tuple[Reading, Reading]:
    """Both tapes, opened, with their stored openings where these can be read.

    Raises what is wrong with a tape's first record, and Trouble when a tape cannot be reached.
    """
    mine, theirs = _reading(one), _reading(other)
    same = mine.opened.opening == theirs.opened.opening
    mine.opening = mine.opening or (theirs.opening if same else None)
    theirs.opening = theirs.opening or (mine.opening if same else None)
    return mine, theirs


def records_of(place: Place, notes: list[str]) -> Iterator[Envelope]:
    """A place's records as far as they are there; a file without a seal is one that grows."""
    if place.path is None:
        yield from place.envelopes()
        return
    with open_file(place.path) as file:
        scan = Scan(file, place.path)
        yield from scan.records()
        if scan.ended != "sealed":
            notes.append(f"{place.told}: {OPEN}")


def _reading(place: Place) -> Reading:
    notes: list[str] = []
    records = records_of(place, notes)
    first = next(records, None)
    opened = opened_by(first, place)
    if opened.run != place.run:
        raise TapeCorrupt(1, f"it opens run {opened.run}, and the tape is that of {place.run}")
    assert first is not None
    reading = Reading(place, opened, chain([first], records), notes=notes)
    try:
        reading.store = place.open_store(opened)
        reading.opening = read_opening(reading.store, opened)
    except Failure as error:
        notes.append(f"{place.told}: what its syncer knew cannot be told ({error})")
    return reading
