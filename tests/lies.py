"""Lies about bytes and words, and the reason that the syncer gives for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from blake3 import blake3

from decodiloco.store.header import Header, parse_header, place, render_header
from decodiloco.store.tensors import Encoded, encode_tensors
from streams.manifest import Manifest
from tests.builders import adopted
from tests.hostile import Liar


def not_a_number(liar: Liar) -> Encoded:
    arrays = liar.arrays(liar.fragment)
    next(iter(arrays.values())).reshape(-1)[0] = np.nan
    return liar.encoded(arrays)


def infinite(liar: Liar) -> Encoded:
    arrays = liar.arrays(liar.fragment)
    list(arrays.values())[-1].reshape(-1)[-1] = np.inf
    return liar.encoded(arrays)


def other_shape(liar: Liar) -> Encoded:
    return liar.encoded({name: a.reshape(1, -1) for name, a in liar.arrays(liar.fragment).items()})


def other_tensors(liar: Liar) -> Encoded:
    return liar.encoded({f"{name}x": a for name, a in liar.arrays(liar.fragment).items()})


def unspeakable_tensors(liar: Liar) -> Encoded:
    """A name that is no text: it once killed every syncer that merged it."""
    return liar.encoded({f"{n}\ud800\U0001f4a3": a for n, a in liar.arrays(liar.fragment).items()})


def other_dtype(liar: Liar) -> Encoded:
    delta = encode_tensors(liar.arrays(liar.fragment), "fp32", squares=True)
    return replace(delta, manifest=delta.manifest.model_copy(update={"codec": "bf16"}))


def other_digest(liar: Liar) -> Encoded:
    delta = liar.encoded(liar.arrays(liar.fragment))
    return replace(delta, manifest=delta.manifest.model_copy(update={"digest": b"\7" * 32}))


def broken_chunk(liar: Liar) -> Encoded:
    delta = liar.encoded(liar.arrays(liar.fragment))
    last = bytearray(delta.parts[-1])
    last[-1] ^= 1
    return replace(delta, parts=(*delta.parts[:-1], bytes(last)))


def cut_off(liar: Liar) -> Encoded:
    delta = liar.encoded(liar.arrays(liar.fragment))
    return replace(delta, parts=(*delta.parts[:-1], bytes(delta.parts[-1])[:-8]))


def lying_header(liar: Liar) -> Encoded:
    return with_squares(liar.encoded(liar.arrays(liar.fragment)), 0.5)


def negative_squares(liar: Liar) -> Encoded:
    return with_squares(liar.encoded(liar.arrays(liar.fragment)), -1.0)


def with_squares(delta: Encoded, factor: float) -> Encoded:
    """The same bytes under a header with other sums of squares."""
    header = parse_header(bytes(delta.parts[0]), "a delta")
    assert header.squares is not None
    entries = place([(e.name, e.dtype, e.shape) for e in header.entries])
    start = render_header(Header(entries, header.chunks, tuple(factor * s for s in header.squares)))
    size_bytes = len(start) + header.payload_bytes
    manifest = Manifest(bytes=size_bytes, digest=blake3(start).digest(), codec=delta.manifest.codec)
    return Encoded((start, *delta.parts[1:]), manifest)


def beyond_bounds(liar: Liar) -> Encoded:
    return liar.encoded(liar.arrays(liar.fragment, scale=1e30))


LEFT_OUT = {
    "not finite": not_a_number,
    "not finite:": infinite,
    "wrong shape": other_shape,
    "wrong tensors": other_tensors,
    "wrong tensors:": unspeakable_tensors,
    "corrupt: blob tiny": other_digest,
    "corrupt:": other_dtype,
    "corrupt: ": broken_chunk,
    "corrupt": cut_off,
    "lying header": lying_header,
    "norm out of bounds": negative_squares,
    "norm out of bounds:": beyond_bounds,
}

REFUSED: dict[str, dict[str, Any]] = {
    "unknown base version 900": {"base_version": 900},
    "unknown round 0": {"round": 0},
    "unknown round 9007199254740992": {"round": 2**53},
    "unknown incarnation": {"incarnation": 2**53},
    "counters: inner_steps -5": {"inner_steps": -5},
    "counters: inner_steps 4 of learner_step -1": {"inner_steps": 4, "learner_step": -1},
    "counters: tokens -1": {"tokens": -1},
    f"counters: tokens {2**62}": {"tokens": 2**62},
    "counters: inner_steps ": {"learner_step": 2**63 - 1},
    "counters: ": {"tokens_trained": 2**53},
    "not finite: loss nan": {"loss": float("nan")},
    "not finite: loss -inf": {"loss": float("-inf")},
    "counters: 1e+300 seconds": {"step_seconds": 1e300},
    "size 1:": {"manifest": Manifest(bytes=1, digest=b"\1" * 32, codec="bf16")},
    "codec fp32": {"manifest": Manifest(bytes=40_000, digest=b"\1" * 32, codec="fp32")},
    "adopted: no fragment 1000": {"adopted": (adopted(1000),)},
    "fragment ": {"fragment": 2**53},
}
