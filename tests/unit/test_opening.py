"""The opening: one blob that comes back whole, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from blake3 import blake3

from decodiloco.config import Run
from decodiloco.errors import BlobCorrupt
from decodiloco.fragments.layout import Layout, Tensor
from decodiloco.opening import Opening, decode_opening, encode_opening
from streams.codec import pack, unpack
from streams.manifest import Manifest
from tests.builders import manifest


def one_tensor(name: str, fragment: int) -> Tensor:
    return Tensor(name=name, shape=(2, 3), dtype="float32", fragment=fragment, rule="mean")


OPENING = Opening(
    Run(name="trial", fragments=2, regions=("home", "far")),
    Layout(fragments=2, tensors=(one_tensor("a", 0), one_tensor("b", 1))),
    (manifest("f0"), manifest("f1")),
)


def named(payload: bytes) -> Manifest:
    return Manifest(bytes=len(payload), digest=blake3(payload).digest(), codec="msgpack")


def test_an_opening_comes_back_from_its_blob() -> None:
    payload, named_as = encode_opening(OPENING)
    again = decode_opening(payload, named_as)
    assert again == OPENING
    assert again.run.digest == OPENING.run.digest
    assert again.layout.digest == OPENING.layout.digest


def older(change: Callable[[dict[str, Any]], object]) -> tuple[bytes, Manifest]:
    """The opening as another build would have stored it: its settings changed as plain values."""
    schema, settings, layout, fragments = plain(unpack(encode_opening(OPENING)[0], 2**20))
    change(settings)
    payload = pack([schema, settings, layout, fragments])
    return payload, named(payload)


def plain(value: Any) -> Any:
    """Lists again, where unpacking gave tuples."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def test_an_opening_from_before_a_setting_has_its_default_and_keeps_its_digest() -> None:
    payload, named_as = older(lambda settings: settings["adoption"].pop("carry"))
    opening = decode_opening(payload, named_as)
    assert opening == OPENING and opening.run.adoption.carry is False
    _, settings, _, _ = unpack(payload, 2**20)
    assert opening.config_digest == blake3(pack(settings)).digest() != OPENING.config_digest
    assert encode_opening(opening) == (payload, named_as)


def test_a_setting_that_this_build_does_not_know_is_refused_by_its_name() -> None:
    payload, named_as = older(lambda settings: settings["adoption"].update(swing=0.5))
    with pytest.raises(BlobCorrupt, match=r"run: adoption\.swing: no such setting.*newer"):
        decode_opening(payload, named_as)


@pytest.mark.parametrize(
    ("settings", "count"), [(3, 2), (2, 1), (2, 3)], ids=["settings", "one less", "one more"]
)
def test_an_opening_whose_parts_are_of_other_numbers_of_fragments_is_refused(
    settings: int, count: int
) -> None:
    run = OPENING.run.model_copy(update={"fragments": settings})
    firsts = tuple(manifest(f"f{fragment}") for fragment in range(count))
    with pytest.raises(BlobCorrupt, match=f"of {settings}, 2 and {count} fragments"):
        decode_opening(*encode_opening(Opening(run, OPENING.layout, firsts)))


def test_the_same_opening_is_the_same_bytes() -> None:
    assert encode_opening(OPENING) == encode_opening(decode_opening(*encode_opening(OPENING)))


def test_a_changed_byte_is_seen() -> None:
    payload, named_as = encode_opening(OPENING)
    for place in range(0, len(payload), 97):
        spoiled = bytearray(payload)
        spoiled[place] ^= 1
        with pytest.raises(BlobCorrupt, match="do not match the digest"):
            decode_opening(bytes(spoiled), named_as)
    with pytest.raises(BlobCorrupt, match="do not match the digest"):
        decode_opening(payload[:-1], named_as)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\xc1", "cannot be read"),
        (pack([1, 2]), "cannot be read"),
        (pack([9, {}, {}, []]), "schema 9; this build reads 1"),
        (pack([1, {"name": "trial"}, {"fragments": 1, "tensors": []}, []]), "cannot be read"),
        (pack(7), "cannot be read"),
        (pack([1, {"name": "trial"}, OPENING.layout.as_plain(), 7]), "cannot be read"),
    ],
)
def test_a_blob_that_is_no_opening_is_refused_also_when_its_digest_agrees(
    payload: bytes, told: str
) -> None:
    with pytest.raises(BlobCorrupt, match=told):
        decode_opening(payload, named(payload))
