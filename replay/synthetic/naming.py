"""Manifests of bytes that were never made: each digest is that of a text which names them. Pure."""

from __future__ import annotations

from blake3 import blake3

from decodiloco.config import Run
from decodiloco.opening import Opening
from decodiloco.store.tensors import Encoded
from decodiloco.syncer.offer_gates import payload_bytes
from streams.manifest import Manifest

HEADER_BYTES = 512  # what a header takes, about; only the size gates look at it


class Naming:
    """Names the blobs of one synthetic run; another seed or run gives other digests."""

    def __init__(self, opening: Opening, seed: int) -> None:
        self._opening = opening
        self._run: Run = opening.run
        self._seed = seed

    def digest(self, what: str) -> bytes:
        """The digest of something that is not there."""
        return blake3(f"synthetic {self._run.name} {self._seed} {what}".encode()).digest()

    def delta(self, learner: str, incarnation: int, fragment: int, learner_step: int) -> Manifest:
        """A delta of a learner, of the size that it would have."""
        codec = self._run.codecs.delta
        payload = payload_bytes(self._opening.layout, fragment, codec)
        what = f"delta {learner} life {incarnation} f{fragment} step {learner_step}"
        return Manifest(bytes=payload + HEADER_BYTES, digest=self.digest(what), codec=codec)

    def checkpoint(self, learner: str, incarnation: int, learner_step: int) -> Manifest:
        """A checkpoint of a learner: two moments for each element."""
        elements = sum(tensor.elements for tensor in self._opening.layout.tensors)
        what = f"checkpoint {learner} life {incarnation} step {learner_step}"
        return Manifest(
            bytes=2 * 4 * elements + HEADER_BYTES, digest=self.digest(what), codec="raw"
        )

    def merged(self, round_number: int, fragment: int, version: int, kind: str) -> Encoded:
        """Parameters, momentum or report of a merge, without any bytes."""
        codec = "msgpack" if kind == "report" else self._run.codecs.fragment
        size = 4 * self._opening.layout.elements(fragment) if kind != "report" else 0
        what = f"{kind} f{fragment} version {version} round {round_number}"
        manifest = Manifest(bytes=size + HEADER_BYTES, digest=self.digest(what), codec=codec)
        return Encoded((), manifest)
