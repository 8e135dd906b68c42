"""Keys are computed from facts, fit every store, and sort learners' rights by prefix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodiloco.store.blobs import checked_key
from decodiloco.store.keys import (
    checkpoint_key,
    delta_key,
    global_key,
    opening_key,
    outer_key,
    report_key,
    snapshot_key,
)
from streams.errors import BadName
from streams.manifest import Manifest

MANIFEST = Manifest(bytes=5, digest=bytes(range(32)), codec="fp32")
MARK = "0001020304050607"
ids = st.from_regex(r"[a-z0-9][a-z0-9-]{0,47}", fullmatch=True)
numbers = st.integers(0, 2**53)


def test_each_kind_of_blob_has_its_own_place() -> None:
    assert [
        opening_key("run-1", MANIFEST),
        delta_key("run-1", "a", 7, 3, 240, MANIFEST),
        global_key("run-1", 3, 2, MANIFEST),
        outer_key("run-1", 3, 2, MANIFEST),
        report_key("run-1", 17, MANIFEST),
        checkpoint_key("run-1", "a", 240, MANIFEST),
        snapshot_key("run-1", 99, MANIFEST),
    ] == [
        f"run-1/opening/{MARK}",
        f"run-1/delta/a/7/f3-240-{MARK}",
        f"run-1/global/f3/2-{MARK}",
        f"run-1/outer/f3/2-{MARK}",
        f"run-1/report/17-{MARK}",
        f"run-1/checkpoint/a/240-{MARK}",
        f"run-1/snapshot/99-{MARK}",
    ]


def test_other_bytes_have_another_key() -> None:
    other = Manifest(bytes=5, digest=bytes(range(1, 33)), codec="fp32")

    assert global_key("run-1", 3, 2, other) != global_key("run-1", 3, 2, MANIFEST)


@given(run=ids, learner=ids, number=numbers, digest=st.binary(min_size=32, max_size=32))
def test_every_key_fits_every_store_and_stays_below_its_owner(
    run: str, learner: str, number: int, digest: bytes
) -> None:
    manifest = Manifest(bytes=1, digest=digest, codec="fp32")
    owned = [
        delta_key(run, learner, number, number, number, manifest),
        checkpoint_key(run, learner, number, manifest),
    ]
    keys = [
        *owned,
        opening_key(run, manifest),
        global_key(run, number, number, manifest),
        outer_key(run, number, number, manifest),
        report_key(run, number, manifest),
        snapshot_key(run, number, manifest),
    ]

    assert [checked_key(key) for key in keys] == keys
    assert all(key.startswith(f"{run}/") and key.endswith(digest.hex()[:16]) for key in keys)
    assert [key.split("/")[2] for key in owned] == [learner, learner]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a.b", "a b", "-a", "x" * 49])
def test_a_name_that_could_lead_elsewhere_makes_no_key(name: str) -> None:
    with pytest.raises(BadName, match="run"):
        opening_key(name, MANIFEST)
    with pytest.raises(BadName, match="learner"):
        delta_key("run-1", name, 1, 1, 1, MANIFEST)
    with pytest.raises(BadName, match="learner"):
        checkpoint_key("run-1", name, 1, MANIFEST)
