"""The merge report: there and back, one form, and the history that the next merge reads."""

from __future__ import annotations

from fractions import Fraction

import pytest
from blake3 import blake3

from decodiloco.errors import BlobCorrupt
from decodiloco.merge.report import (
    Contributor,
    Report,
    TensorReport,
    decode_report,
    encode_report,
    next_history,
)
from decodiloco.merge.rules import Clipping, plan_merge

REPORT = Report(
    round=17,
    fragment=3,
    version=5,
    contributors=(Contributor(40, "a", 0.25), Contributor(44, "b", 0.75)),
    tensors=(
        TensorReport(
            name="w",
            rule="radial",
            norms=(1.0, 9.0),
            limit=2.0,
            clips=(1.0, 2 / 9),
            scales=(0.25, 0.083),
            factor=1.5,
            outer_gradient_norm=1.75,
            medians=(0.5, 1.5),
        ),
        TensorReport("x", "mean", (0.0, 0.0), None, (1.0, 1.0), (0.25, 0.75), 1.0, 0.0, (0.0,)),
    ),
)


def test_a_report_comes_back_whole() -> None:
    payload, manifest = encode_report(REPORT)
    assert decode_report(payload) == REPORT
    assert (manifest.bytes, manifest.codec) == (len(payload), "msgpack")
    assert manifest.digest == blake3(payload).digest()


def test_the_history_is_found_by_name() -> None:
    assert REPORT.history("w") == (0.5, 1.5)
    assert REPORT.history("unknown") == ()


def test_the_history_keeps_the_last_eight_medians() -> None:
    plan = plan_merge("mean", [Fraction(1)] * 3, [1.0, 81.0, 10.0**6], Clipping(2.0))
    assert next_history((), plan) == (9.0,)
    assert next_history(tuple(map(float, range(8))), plan) == (1, 2, 3, 4, 5, 6, 7, 9)


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\xc0", b"\x81\xa6schema\x02", b"\x93\x01"])
def test_what_is_no_report_is_refused(payload: bytes) -> None:
    with pytest.raises(BlobCorrupt, match="merge report"):
        decode_report(payload)
