"""What a learner does beside its training thread, as jobs that any thread may run.

A job holds all that it needs and touches no state. The core hands jobs out and is told their
results.
"""

from __future__ import annotations

from dataclasses import dataclass

from decodiloco.learner.checkpoint import Raw
from decodiloco.learner.copies import Arrays, HostCopy
from decodiloco.learner.delta import made_delta
from decodiloco.learner.feedback import Coded
from decodiloco.learner.state import Checkpoint, Fetch, Offer
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import checkpoint_key, delta_key, global_key
from decodiloco.store.tensors import encode_raw, read_raw, read_tensors
from streams.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Stored:
    """A delta that is durable, and its residual where the run feeds that back."""

    manifest: Manifest
    residual: Coded | None


@dataclass(frozen=True, slots=True)
class OfferJob:
    """Make a delta and store it. `residuals` are in it; None where the run feeds none back."""

    run: str
    learner: str
    incarnation: int
    codec: str
    ask: Offer
    copy: HostCopy
    residuals: tuple[Coded, ...] | None = None

    @property
    def what(self) -> str:
        """What is done, for people."""
        return f"storing a delta of fragment {self.ask.copy.fragment}"

    def run_on(self, store: BlobStore) -> Stored:
        """The stored delta."""
        encoded, residual = made_delta(self.copy, self.codec, self.residuals)
        key = delta_key(
            self.run,
            self.learner,
            self.incarnation,
            self.ask.copy.fragment,
            self.ask.copy.learner_step,
            encoded.manifest,
        )
        store.put(key, encoded.parts)
        return Stored(encoded.manifest, residual)


@dataclass(frozen=True, slots=True)
class FetchJob:
    """Fetch a merged version of a fragment."""

    run: str
    ask: Fetch

    @property
    def what(self) -> str:
        """What is done, for people."""
        return f"fetching version {self.ask.version} of fragment {self.ask.fragment}"

    def run_on(self, store: BlobStore) -> Arrays:
        """The version's tensors, checked against their digests."""
        ask = self.ask
        key = global_key(self.run, ask.fragment, ask.version, ask.manifest)
        return read_tensors(store, key, ask.manifest)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """Store the inner state that was captured at a boundary.

    The residuals of these positions are among its arrays.
    """

    run: str
    learner: str
    learner_step: int
    step: int
    arrays: Raw
    residuals: tuple[int, ...] = ()

    @property
    def what(self) -> str:
        """What is done, for people."""
        return f"storing the checkpoint of step {self.learner_step}"

    def run_on(self, store: BlobStore) -> Manifest:
        """The manifest of the stored checkpoint."""
        encoded = encode_raw(self.arrays)
        key = checkpoint_key(self.run, self.learner, self.learner_step, encoded.manifest)
        store.put(key, encoded.parts)
        return encoded.manifest


@dataclass(frozen=True, slots=True)
class MomentsJob:
    """Fetch a checkpoint that the tape names, to take moments from."""

    run: str
    stored: Checkpoint

    @property
    def what(self) -> str:
        """What is done, for people."""
        return f"fetching the checkpoint of {self.stored.learner} at {self.stored.learner_step}"

    def run_on(self, store: BlobStore) -> Raw:
        """The checkpoint's arrays, checked against their digest."""
        stored = self.stored
        key = checkpoint_key(self.run, stored.learner, stored.learner_step, stored.manifest)
        return read_raw(store, key, stored.manifest)


Job = OfferJob | FetchJob | CheckpointJob
Result = Stored | Manifest | Arrays
