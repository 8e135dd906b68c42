"""What a merge did, tensor by tensor, as one small blob; and what the next merge reads of it.

Canonical msgpack, floats as float64. Knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from decodiloco.errors import BlobCorrupt
from decodiloco.merge.rules import HISTORY_VERSIONS, Plan
from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.manifest import Manifest
from streams.printing import first_fault

SCHEMA = 1
REPORT_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Contributor:
    """Whose delta went in: the offer's position, the learner, and its share as a float32 value.

    `step_norm` is the delta's norm over its inner steps; `own` and `rest` are the mean cosines
    of the delta with the others and of these with each other, None where fewer than three spoke.
    """

    position: int
    learner: str
    weight: float
    step_norm: float = 0.0
    own: float | None = None
    rest: float | None = None


@dataclass(frozen=True, slots=True)
class TensorReport:
    """One tensor's merge; `norms`, `clips` and `scales` are in the order of the contributors.

    `norms` are as offered; a clip below 1 shortened one to `limit`. `medians` are the tensor's
    median norms in its last 8 versions, this one the last: the history of the next clip.
    """

    name: str
    rule: str
    norms: tuple[float, ...]
    limit: float | None
    clips: tuple[float, ...]
    scales: tuple[float, ...]
    factor: float
    outer_gradient_norm: float
    medians: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A merge, explained. `step_norms` are the medians of the contributors' in the last versions,
    this one the last.
    """

    round: int
    fragment: int
    version: int
    contributors: tuple[Contributor, ...]
    tensors: tuple[TensorReport, ...]
    step_norms: tuple[float, ...] = ()

    def history(self, name: str) -> tuple[float, ...]:
        """The medians of a tensor's last versions, oldest first."""
        return next((tensor.medians for tensor in self.tensors if tensor.name == name), ())


def next_history(history: tuple[float, ...], plan: Plan) -> tuple[float, ...]:
    """The history with this version's median added, of norms as they were merged.

    Clipped ones count as clipped: else a stubborn outlier would raise its own limit at once.
    """
    return lengthened(history, plan.median)


def lengthened(history: tuple[float, ...], newest: float) -> tuple[float, ...]:
    """The last versions' values with this version's behind them."""
    return (*history, newest)[-HISTORY_VERSIONS:]


def encode_report(report: Report) -> tuple[bytes, Manifest]:
    """The blob and its manifest (digest: blake3 of all bytes)."""
    payload = pack(
        {
            "schema": SCHEMA,
            "round": report.round,
            "fragment": report.fragment,
            "version": report.version,
            "contributors": [
                {name: getattr(one, name) for name in Contributor.__slots__}
                for one in report.contributors
            ],
            "step_norms": report.step_norms,
            "tensors": [_plain(tensor) for tensor in report.tensors],
        }
    )
    assert len(payload) <= REPORT_BYTES_MAX, f"a report of {len(payload)} bytes"
    digest = blake3(payload).digest()
    return payload, Manifest(bytes=len(payload), digest=digest, codec="msgpack")


def decode_report(payload: bytes) -> Report:
    """The report in these bytes, whose digest was checked. Raises BlobCorrupt if it is none."""
    try:
        table = unpack(payload, REPORT_BYTES_MAX)
        if table.pop("schema") != SCHEMA:
            raise ValueError(f"this build reads schema {SCHEMA}")
        contributors = tuple(Contributor(**one) for one in table.pop("contributors"))
        tensors = tuple(TensorReport(**one) for one in table.pop("tensors"))
        step_norms = tuple(table.pop("step_norms", ()))
        return Report(**table, contributors=contributors, tensors=tensors, step_norms=step_norms)
    except (Unreadable, ValueError, TypeError, KeyError, AttributeError) as error:
        told = first_fault(error)
        raise BlobCorrupt(f"a merge report that cannot be read: {told}"[:300]) from None


def _plain(tensor: TensorReport) -> dict[str, Any]:
    return {name: getattr(tensor, name) for name in TensorReport.__slots__}
