"""The merged model and its bookkeeping at any moment of a run, rebuilt from the tape.

Knows the fold and the store; it must not know how the tape is read or what a shell prints.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
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
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from replay.blob_checks import check_holds, small_whole
from replay.errors import Differs, NotReached, Unwritable
from replay.place import Place, find_place
from replay.progress import Tell, silently
from replay.reach import EVERYTHING, Reach
from replay.refold import Folded, refold
from streams.envelope import Envelope
from streams.events import RunOpened
from streams.manifest import Manifest

Array = npt.NDArray[np.float32]


class StateAt:
    """A run as it stood after one position: what the syncer knew, and the bytes that it named."""

    def __init__(self, state: State, store: BlobStore, reach: Reach = EVERYTHING) -> None:
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
            if self._reach.is_whole(self.position) or self.position == self._reach.position:
                raise
            raise self._reach.beyond(self.run, f"the model at position {self.position}") from None


def state_at(
    place: str | Path,
    position: int | None = None,
    *,
    step: int | None = None,
    fragment: int | None = None,
    version: int | None = None,
    store: str | None = None,
) -> StateAt:
    """The state of a run after a position, a syncer step, or a fragment's version; else the last.

    Step T and version V are states right after the merge that made them; 0 is the opening.
    The whole tape is read and checked, also what comes later. Raises NotReached when the tape
    does not hold the moment, and the errors of `open_tape`.
    """
    return state_of(find_place(place, store), moment(position, step, fragment, version))


Moment = tuple[str, Callable[[Folded], bool] | None]


def moment(
    position: int | None, step: int | None, fragment: int | None, version: int | None
) -> Moment:
    """What is asked for, in words and as a test of each fold; None for the end of the tape."""
    if (fragment is None) != (version is None):
        raise NotReached("a fragment's state is asked for with both --fragment and --version")
    if sum(each is not None for each in (position, step, fragment)) > 1:
        raise NotReached("ask for a position, a step, or a fragment's version: one of them")
    if position is not None:
        return f"position {position}", lambda folded: folded.after.position == position
    if step is not None:
        return f"step {step}", lambda folded: folded.after.step == step
    if fragment is not None:
        return (
            f"version {version} of fragment {fragment}",
            lambda folded: (
                fragment < len(folded.after.versions) and folded.after.versions[fragment] == version
            ),
        )
    return "the end", None


def state_of(place: Place, asked: Moment, tell: Tell = silently) -> StateAt:
    """The state of a place at a moment. The caller closes it; `tell` hears of the progress."""
    told, holds = asked
    envelopes = place.envelopes()
    first = next(envelopes, None)
    opened = opened_by(first, place)
    store = place.open_store(opened)
    try:
        opening = read_opening(store, opened)
        found: State | None = None
        last: State | None = None
        reach = EVERYTHING
        assert first is not None
        for folded in refold(chain([first], envelopes), opening):
            last = folded.after
            reach = reach.then(folded.envelope)
            tell(last.position, 0)
            if found is None and holds is not None and holds(folded):
                found = last
        assert last is not None
        if holds is not None and found is None:
            raise NotReached(
                f"run {place.run}: {told} is not on this tape, which ends at position "
                f"{last.position}, step {last.step}, with {len(last.versions)} fragments at "
                f"versions {_range_told(last.versions)}"
            )
        return StateAt(found or last, store, reach)
    except BaseException:
        store.close()
        raise


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
    """The fields that `replay state --json` prints."""
    return {
        "position": state.position,
        "step": state.step,
        "tokens": state.tokens,
        "versions": list(state.versions),
        "digest": state.digest,
    }
