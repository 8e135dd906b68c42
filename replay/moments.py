"""Moments of a run that can be asked for, and where on a tape each of them is. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from decodiloco.syncer.state import State
from replay.errors import NotReached
from replay.records import Records
from streams.events import FragmentMerged


@dataclass(frozen=True, slots=True)
class Moment:
    """A position, a syncer step, or a fragment's version; the end of the tape, where all are None.

    Step T and version V are the moments right after the merge that made them; 0 is the opening.
    """

    position: int | None = None
    step: int | None = None
    fragment: int | None = None
    version: int | None = None

    @property
    def is_end(self) -> bool:
        return self == END

    @property
    def told(self) -> str:
        """The moment, for a message."""
        if self.position is not None:
            return f"position {self.position}"
        if self.step is not None:
            return f"step {self.step}"
        if self.fragment is not None:
            return f"version {self.version} of fragment {self.fragment}"
        return "the end"

    def is_of(self, state: State) -> bool:
        """Whether it has come, of states that are told in order."""
        if self.position is not None:
            return state.position == self.position
        if self.step is not None:
            return state.step == self.step
        if self.fragment is not None:
            made = state.fragments
            return self.fragment < len(made) and made[self.fragment].version == self.version
        return False

    def has_passed(self, state: State) -> bool:
        """Whether it has come in this state or before it."""
        if self.position is not None:
            return state.position >= self.position
        if self.step is not None:
            return state.step >= self.step
        if self.fragment is not None and self.version is not None:
            versions = state.versions
            return self.fragment < len(versions) and versions[self.fragment] >= self.version
        return False

    def sought_in(self, records: Records, fragments: int) -> int:
        """The position of this moment, or the tape's last where it is not on the tape.

        Facts are looked at that nobody has chained: on a forged tape they may lead astray.
        """
        last = records.last
        if self.position is not None:
            return min(self.position, last)
        wanted = self.step if self.fragment is None else self.version
        if wanted is None or (self.fragment or 0) >= fragments:
            return last

        def reached(position: int) -> int:
            for envelope in records.back(FragmentMerged.kind, position):
                event = envelope.event
                assert isinstance(event, FragmentMerged)
                if self.fragment is None:
                    return event.step
                if event.fragment == self.fragment:
                    return event.version
            return 0

        return min(last, 1 + bisect_left(range(1, last + 1), wanted, key=reached))


END = Moment()


def moment(
    position: int | None, step: int | None, fragment: int | None, version: int | None
) -> Moment:
    """The moment that is asked for. Raises NotReached for none, or for two at once."""
    if (fragment is None) != (version is None):
        raise NotReached("a fragment's state is asked for with both --fragment and --version")
    if sum(each is not None for each in (position, step, fragment)) > 1:
        raise NotReached("ask for a position, a step, or a fragment's version: one of them")
    return Moment(position, step, fragment, version)
