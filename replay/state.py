"""The merged model and its bookkeeping at any moment of a run, rebuilt from the tape.

Knows the fold and the store; it must not know how the tape is read or what a shell prints.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.merge.model_digest import model_digest
from decodiloco.opening import Opening, opening_of
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, opening_key, outer_key
from decodiloco.store.tensors import TensorBlob, open_tensors
from decodiloco.syncer.machine import begin
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from replay.blob_checks import check_holds, small_whole
from replay.errors import Differs, NotReached, Unwritable
from replay.moments import Moment, moment
from replay.nearest import Stretch, nearest
from replay.place import Place, find_place
from replay.progress import Note, Tell, silently, unnoted
from replay.reach import EVERYTHING, Reach
from replay.refold import next_state
from streams.envelope import Envelope
from streams.events import HorizonRaised, RunOpened
from streams.manifest import Manifest

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Begun:
    """With which snapshot a fold began: its position, and that of the fact that names it.

    `agreed_at`: the newest merge whose state digest was that of the state folded from it; 0 for
    none. A fold from the first fact has `snapshot` 0.
    """

    snapshot: int = 0
    named_at: int = 0
    agreed_at: int = 0

    @property
    def told(self) -> str:
        """Where the fold began and what agrees with it, in words."""
        if not self.snapshot:
            return "folded from the first fact; the whole tape is chained"
        agreed = (
            f"the merge at position {self.agreed_at} agrees"
            if self.agreed_at
            else "no merge after it says whether it is right"
        )
        return (
            f"folded from the snapshot of position {self.snapshot}, named at position "
            f"{self.named_at}; {agreed}"
        )


FIRST_FACT = Begun()


class StateAt:
    """A run as it stood after one position: what the syncer knew, and the bytes that it named.

    `begun` tells where its fold began. `reach` is asked for only when a blob is missing.
    """

    def __init__(
        self,
        state: State,
        store: BlobStore,
        reach: Callable[[], Reach] = lambda: EVERYTHING,
        begun: Begun = FIRST_FACT,
    ) -> None:
        self.begun = begun
        self._state = state
        self._store = store
        self._reach = reach

    @property
    def run(self) -> str:
        """The run's name."""
        return self._state.run

    @property
    def position(self) -> int:
        """The last position that is in this state."""
        return self._state.position

    @property
    def step(self) -> int:
        """Merges so far."""
        return self._state.step

    @property
    def tokens(self) -> int:
        """Tokens trained so far, by all learners, as their words tell."""
        return self._state.tokens

    @property
    def versions(self) -> tuple[int, ...]:
        """How many merges each fragment has had."""
        return self._state.versions

    @property
    def digest(self) -> str:
        """State digest v1 in hex: what a merge recorded next would carry as `state_digest`."""
        return state_digest(self._state).hex()

    def model_digest(self) -> str:
        """The digest of the model in hex, as RunClosed and leaving learners carry it."""
        return model_digest(self._state.layout, self._tensors(self._parameters_of)).hex()

    def parameters(self) -> dict[str, Array]:
        """Every trained tensor by name: float32, shaped.

        Raises BlobMissing or BlobCorrupt, and BeyondHorizon where a horizon let go of the bytes.
        """
        return dict(self._tensors(self._parameters_of))

    def momentum(self) -> dict[str, Array]:
        """The outer optimizer's momentum by tensor name: float32, shaped, zeros at version 0."""
        return dict(self._tensors(self._momentum_of))

    def save(self, path: Path) -> None:
        """Writes the parameters to a safetensors file, whole or not at all."""
        told = {"run": self.run, "position": self.position, "step": self.step}
        try:
            if path.exists() and not path.is_file():  # a rename would take a device's place
                raise Unwritable(f"model file {path}: this is no file; name another one with -o")
            aside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
            try:
                save_file(self.parameters(), aside, metadata={"decodiloco": json.dumps(told)})
                aside.replace(path)
            finally:
                aside.unlink(missing_ok=True)
        except (OSError, SafetensorError) as error:
            raise Unwritable(f"model file {path}: {error}") from None

    def close(self) -> None:
        """Lets go of the store."""
        self._store.close()

    def _parameters_of(self, fragment: int) -> tuple[str, Manifest] | None:
        manifest = self._state.parameters[fragment]
        return global_key(self.run, fragment, self.versions[fragment], manifest), manifest

    def _momentum_of(self, fragment: int) -> tuple[str, Manifest] | None:
        manifest = self._state.momentum[fragment]
        if manifest is None:
            return None
        return outer_key(self.run, fragment, self.versions[fragment], manifest), manifest

    def _tensors(
        self, blob_of: Callable[[int], tuple[str, Manifest] | None]
    ) -> Iterator[tuple[str, Array]]:
        layout = self._state.layout
        for fragment in range(layout.fragments):
            named = blob_of(fragment)
            blob = None if named is None else self._opened(*named)
            if blob is not None:
                check_holds(blob, layout.of(fragment))
            for tensor in layout.of(fragment):
                if blob is None:
                    yield tensor.name, np.zeros(tensor.shape, np.float32)
                else:
                    yield tensor.name, blob.read(tensor.name)

    def _opened(self, key: str, manifest: Manifest) -> TensorBlob:
        try:
            return open_tensors(self._store, key, manifest)
        except BlobMissing:
            reach = self._reach()
            if reach.is_whole(self.position) or self.position == reach.position:
                raise
            raise reach.beyond(self.run, f"the model at position {self.position}") from None


def state_at(
    place: str | Path,
    position: int | None = None,
    *,
    step: int | None = None,
    fragment: int | None = None,
    version: int | None = None,
    store: str | None = None,
    from_start: bool = False,
) -> StateAt:
    """The state of a run after a position, a syncer step, or a fragment's version; else the last.

    Step T and version V are states right after the merge that made them; 0 is the opening.
    Folded from the newest stored snapshot before the moment, whose claims the next merges on the
    tape must agree with; `from_start` folds from the first fact, and reads and checks the whole
    tape, also what comes later. Raises NotReached when the tape does not hold the moment, and the
    errors of `open_tape`.
    """
    asked = moment(position, step, fragment, version)
    return state_of(find_place(place, store), asked, from_start=from_start)


def state_of(
    place: Place,
    asked: Moment,
    tell: Tell = silently,
    note: Note = unnoted,
    from_start: bool = False,
) -> StateAt:
    """The state of a place at a moment. The caller closes it; `tell` hears of the progress.

    `note` hears of snapshots that cannot be used. Where none can, the fold begins at the start.
    """
    found = None if from_start else _from_snapshot(place, asked, tell, note)
    return found or _from_first(place, asked, tell)


def _from_snapshot(place: Place, asked: Moment, tell: Tell, note: Note) -> StateAt | None:
    """The state, folded from the newest snapshot before it; None where there is none.

    Goes on to the first merge after the moment, whose state digest proves the state.
    """
    with ExitStack() as stack:
        records = place.records()
        stack.callback(records.close)
        first = next(records.read(0), None)
        opened = opened_by(first, place)
        store = place.open_store(opened)
        leaving = stack.enter_context(ExitStack())
        leaving.callback(store.close)
        opening = read_opening(store, opened)
        assert first is not None
        next_state(begin(opening), first)  # for what it checks: no snapshot knows of the opening
        upto = asked.sought_in(records, opening.layout.fragments)
        start = nearest(records, store, opening, upto, note)
        if start is None:
            return None
        if asked.has_passed(start.state):
            note("the merges on this tape are not in order; folding from the first fact")
            return None
        stretch = Stretch(start, records)
        found: State | None = None
        for last in stretch.states():
            tell(last.position, 0)
            if found is None and (asked.is_of(last) or last.position == records.last):
                found = last
            is_agreed = found is not None and stretch.agreed_at > found.position
            if is_agreed and last.position >= start.named_at:
                break
        assert found is not None
        _check_reached(place, asked, found)
        leaving.pop_all()
        begun = Begun(start.state.position, start.named_at, stretch.agreed_at)
        return StateAt(found, store, partial(_newest_reach, place), begun)


def _from_first(place: Place, asked: Moment, tell: Tell) -> StateAt:
    """The state, folded from the first fact; the whole tape is read and checked."""
    envelopes = place.envelopes()
    first = next(envelopes, None)
    opened = opened_by(first, place)
    store = place.open_store(opened)
    try:
        last = begin(read_opening(store, opened))
        found: State | None = None
        reach = EVERYTHING
        assert first is not None
        for envelope in chain([first], envelopes):
            last = next_state(last, envelope)
            reach = reach.then(envelope)
            tell(envelope.position, 0)
            if found is None and asked.is_of(last):
                found = last
        _check_reached(place, asked, found or last)
        return StateAt(found or last, store, lambda: reach)
    except BaseException:
        store.close()
        raise


def _check_reached(place: Place, asked: Moment, found: State) -> None:
    """Raises NotReached when `found`, which is the last where there is no other, is not it."""
    if not asked.is_end and not asked.is_of(found):
        raise NotReached(
            f"run {place.run}: {asked.told} is not on this tape, which ends at position "
            f"{found.position}, step {found.step}, with {len(found.versions)} fragments at "
            f"versions {_range_told(found.versions)}"
        )


def _newest_reach(place: Place) -> Reach:
    """How far back bytes are kept at the end of a tape, by its newest horizon alone."""
    records = place.records()
    try:
        raised = next(records.back(HorizonRaised.kind, records.last), None)
        return EVERYTHING if raised is None else EVERYTHING.then(raised)
    finally:
        records.close()


def opened_by(first: Envelope | None, place: Place) -> RunOpened:
    """The RunOpened in a tape's first record, or a failure that says what stands there."""
    if first is None:
        raise NotReached(f"run {place.run}: the tape at {place.told} is empty")
    if not isinstance(first.event, RunOpened):
        raise Differs(f"a tape begins with run_opened, not {first.event.kind}", first.position)
    return first.event


def read_opening(store: BlobStore, opened: RunOpened) -> Opening:
    """The stored opening that RunOpened names, checked against its digest."""
    key = opening_key(opened.run, opened.opening)
    payload = small_whole(store, key, opened.opening, position=1)
    try:
        return opening_of(opened, payload)
    except BlobCorrupt as error:
        raise Differs(str(error), 1, key) from None


def _range_told(versions: tuple[int, ...]) -> str:
    return f"{min(versions)} to {max(versions)}"


def told_as_json(state: StateAt) -> Mapping[str, object]:
    """The fields that `replay state --json` prints; `snapshot` only where a fold began with one."""
    return {
        "position": state.position,
        "step": state.step,
        "tokens": state.tokens,
        "versions": list(state.versions),
        "digest": state.digest,
        **({"snapshot": state.begun.snapshot} if state.begun.snapshot else {}),
    }
