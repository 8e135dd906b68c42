"""Draws for the laws: any fact the models allow, any envelope, any bytes at all."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgpack
from hypothesis import strategies as st

from streams.codec import EVENT_BYTES_MAX, seal
from streams.envelope import POSITION_MAX, Envelope, Source
from streams.events import EVENTS, WORDS, Event, Fact
from streams.manifest import Manifest

names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,11}", fullmatch=True)
counts = st.integers(0, 2**53)
digests = st.binary(min_size=32, max_size=32)
manifests = st.builds(
    Manifest, bytes=counts, digest=digests, codec=st.sampled_from(["fp32", "bf16", "msgpack"])
)


@cache
def facts_of(kind: type[Fact]) -> st.SearchStrategy[Any]:
    """Any fact of one kind. The tuples stay short, so that a fact stays below its limit."""
    schema = kind.model_json_schema()["properties"]
    return st.builds(
        kind,
        **{
            name: _drawn(schema[name], field.annotation)
            for name, field in kind.model_fields.items()
        },
    )


def _drawn(schema: dict[str, Any], annotation: Any) -> st.SearchStrategy[Any]:
    if annotation is Manifest:
        return manifests
    if "$ref" in schema:
        return facts_of(annotation)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    match schema["type"]:
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            lowest = schema.get("minimum")
            return st.floats(min_value=lowest, allow_nan=False, allow_infinity=False)
        case "array":
            inner = annotation.__args__[0]
            inner = getattr(inner, "__origin__", inner)
            return st.lists(_drawn(schema["items"], inner), max_size=3).map(tuple)
        case "string" if annotation is bytes:
            length_max = min(schema.get("maxLength", 64), 1024)
            return st.binary(min_size=schema.get("minLength", 0), max_size=length_max)
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True).map(lambda text: text.strip())
        case _:
            length_max = min(schema.get("maxLength", 64), 64)
            return st.text(min_size=schema.get("minLength", 0), max_size=length_max)


events: st.SearchStrategy[Event] = st.sampled_from(EVENTS).flatmap(facts_of)
words: st.SearchStrategy[Event] = st.sampled_from(WORDS).flatmap(facts_of)
sources = st.builds(Source, inbox=names, life=names, sequence=counts)
envelopes: st.SearchStrategy[Envelope] = st.builds(
    seal,
    position=st.integers(1, POSITION_MAX),
    previous=digests,
    fence=counts,
    writer=names,
    source=st.none() | sources,
    time_seconds=st.floats(allow_nan=False, allow_infinity=False),
    event=events,
)

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
plain_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
any_bytes = st.binary(max_size=600) | plain_values.map(
    lambda value: bytes(msgpack.packb(value, use_bin_type=True))
)
oversized_bytes = st.integers(EVENT_BYTES_MAX + 1, 2 * EVENT_BYTES_MAX).map(
    lambda size: b"\xc0" * size
)
