"""Deltas in a store, and the order that merges them, by way of a line of JSON. Loads no torch."""

from __future__ import annotations

import json
from dataclasses import replace

from decodiloco.fragments.layout import Tensor
from decodiloco.merge.fragment import Contribution, MergeOrder
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import delta_key, global_key
from decodiloco.store.local import LocalStore
from decodiloco.store.tensors import Encoded, encode_tensors
from streams.manifest import Manifest
from tests.merge_orders import RUN, SETTINGS, filled, tensor

MEGABYTE = 1_000_000
TENSORS = 4


def put_all(store: BlobStore, learners: int, megabytes: int) -> str:
    """Stores fp32 deltas of so many bytes each, one under all names; returns what names them."""
    tensors = _tensors(megabytes * MEGABYTE // 4 // TENSORS)
    delta = encode_tensors(filled(1, 1e-3, tensors), "fp32", squares=True)
    first = _key(0, delta.manifest)
    store.put(first, delta.parts)
    for place in range(1, learners):
        _put_again(store, first, _key(place, delta.manifest), delta)
    before = encode_tensors(filled(2, 1.0, tensors), "fp32")
    store.put(global_key(RUN, 0, 0, before.manifest), before.parts)
    manifests = [each.manifest.model_dump(mode="python") for each in (delta, before)]
    named = [each | {"digest": each["digest"].hex()} for each in manifests]
    return json.dumps([learners, tensors[0].elements, *named])


def _put_again(store: BlobStore, first: str, key: str, delta: Encoded) -> None:
    """The same bytes under another key; where that is a file, one file by another name."""
    if not isinstance(store, LocalStore):
        store.put(key, delta.parts)
        return
    path = store.folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.hardlink_to(store.folder / first)


def order_of(told: str) -> MergeOrder:
    """A first merge of what `put_all` stored. Cohort gates are off: they have their own figure."""
    learners, elements, *named = json.loads(told)
    delta, before = (
        Manifest(**(each | {"digest": bytes.fromhex(each["digest"])})) for each in named
    )
    settings = replace(SETTINGS, delta_codec="fp32", direction=None, norm_extreme=None)
    return MergeOrder(
        run=RUN, round=0, fragment=0, version=1, tensors=_tensors(elements), quorum=1,
        contributions=tuple(
            Contribution(11 + place, f"l{place:02}", 1000 + place, 24, _key(place, delta), delta)
            for place in range(learners)
        ),
        parameters=before, momentum=None, report=None, report_round=None, settings=settings,
    )  # fmt: skip


def _tensors(elements: int) -> tuple[Tensor, ...]:
    return tuple(tensor(f"t{at}", (elements,)) for at in range(TENSORS))


def _key(place: int, manifest: Manifest) -> str:
    return delta_key(RUN, f"l{place:02}", 3, 0, 11 + place, manifest)
