"""An archive read from any position on: the segments that are asked for, each checked whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from decodiloco.archive.segments import Named, listed, read_segment
from decodiloco.store.blobs import BlobStore
from streams.envelope import Envelope
from streams.errors import SegmentCorrupt
from streams.segment import FACTS_MAX, Segment


class ArchivedRecords:
    """The archive of a run by position; see `Records`."""

    def __init__(self, store: BlobStore, run: str) -> None:
        self._store = store
        self._run = run
        self._names = listed(store, run)
        self._held: tuple[Named, Segment] | None = None
        self.last = self._end()

    def read(self, after: int) -> Iterator[Envelope]:
        """As `Records` says. Raises SegmentCorrupt for a gap."""
        while after < self.last:
            segment = self._holding(after + 1)
            yield from segment.records[after + 1 - segment.first :]
            after = segment.last

    def back(self, kind: str, upto: int) -> Iterator[Envelope]:
        """As `Records` says."""
        upto = min(upto, self.last)
        while upto > 0:
            segment = self._holding(upto)
            for record in reversed(segment.records[: upto + 1 - segment.first]):
                if record.event.kind == kind:
                    yield record
            upto = segment.first - 1

    def close(self) -> None:
        """Lets go of the store."""
        self._store.close()

    def _end(self) -> int:
        """The last position of any segment; one that begins earlier may reach farther."""
        last = 0
        for named in reversed(self._names):
            if named.first + FACTS_MAX - 1 <= last:
                break
            last = max(last, self._segment(named).last)
        return last

    def _holding(self, position: int) -> Segment:
        """A segment that holds a position. Two archivers may have cut one stretch differently."""
        begun = bisect_right(self._names, position, key=lambda named: named.first)
        for named in reversed(self._names[:begun]):
            if named.first + FACTS_MAX <= position:
                break
            segment = self._segment(named)
            if segment.last >= position:
                return segment
        raise SegmentCorrupt(
            f"the archive of run {self._run} has a gap: position {position} is in none of its "
            "segments"
        )

    def _segment(self, named: Named) -> Segment:
        if self._held is None or self._held[0] != named:
            self._held = named, read_segment(self._store, self._run, named)
        return self._held[1]
