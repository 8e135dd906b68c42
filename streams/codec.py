"""Events and envelopes to canonical msgpack bytes and back, within hard limits.

Canonical: an array of fixed order, the event's fields as a map sorted by key, the shortest
form of each integer, float64 for every float; a field that has a default is there only where it
says something else. The same fact is the same bytes on any machine, and an envelope whose bytes
are not the canonical ones is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import msgpack
import msgspec
from blake3 import blake3
from pydantic import BaseModel, ValidationError

from streams import compiled
from streams.envelope import POSITION_MAX, Envelope, Source
from streams.errors import Unreadable
from streams.events import BY_KIND, WORDS, Event, Word
from streams.printing import first_fault, printable, shown

SCHEMA = 1
EVENT_BYTES_MAX = 16 * 1024
ENVELOPE_BYTES_MAX = EVENT_BYTES_MAX + 1024
DEPTH_MAX = 6

_plainly = msgspec.msgpack.Encoder().encode
_LEAVES = frozenset((bool, int, float, str, bytes, type(None)))
_WORD_KINDS = frozenset(word.kind for word in WORDS)


def pack(value: Any) -> bytes:
    """Canonical msgpack of plain values and models (maps sorted by key at every depth)."""
    return cast(bytes, msgpack.packb(_sorted(value), use_bin_type=True))


def pack_plain(value: Any) -> bytes:
    """The same of values in which there is neither map nor model: many times faster."""
    return _plainly(value)


def unpack(payload: bytes, bytes_max: int, depth_max: int = DEPTH_MAX) -> Any:
    """Plain values from msgpack, or Unreadable; arrays become tuples."""
    if len(payload) > bytes_max:
        raise Unreadable(f"{len(payload)} bytes, of {bytes_max} allowed")
    try:
        value = msgpack.unpackb(
            payload,
            use_list=False,
            raw=False,
            strict_map_key=True,
            max_str_len=bytes_max,
            max_bin_len=bytes_max,
            max_array_len=bytes_max,
            max_map_len=bytes_max,
            max_ext_len=0,
        )
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        told = printable(f"not msgpack: {type(error).__name__}: {error}")
        raise Unreadable(told[:180]) from None
    _check_depth(value, depth_max)
    return value


def encode_event(event: Event) -> bytes:
    """A word as it is said to an inbox: schema, kind, fields."""
    payload = pack([SCHEMA, event.kind, event])
    assert len(payload) <= EVENT_BYTES_MAX, f"{event.kind} of {len(payload)} bytes"
    return payload


def decode_word(payload: bytes) -> Word:
    """The word in these bytes. Raises Unreadable, whatever the bytes are."""
    value = unpack(payload, EVENT_BYTES_MAX)
    if not isinstance(value, tuple) or len(value) != 3:
        raise Unreadable("a word is an array of schema, kind and fields")
    schema, kind, fields = value
    if not isinstance(kind, str) or kind not in _WORD_KINDS:
        raise Unreadable(f"{shown(kind)} is nothing that can be said to an inbox")
    return cast(Word, _event(schema, kind, fields))


def seal(
    position: int,
    previous: bytes,
    fence: int,
    writer: str,
    source: Source | None,
    time_seconds: float,
    event: Event,
) -> Envelope:
    """An envelope with its digest."""
    assert 1 <= position <= POSITION_MAX and len(previous) == 32
    bare = Envelope(position, previous, fence, writer, source, time_seconds, event)
    payload = encode_envelope(bare)
    return Envelope(
        position, previous, fence, writer, source, time_seconds, event, digest_of(payload)
    )


def digest_of(payload: bytes) -> bytes:
    """The digest of a record's bytes, as the next record's `previous` carries it."""
    return blake3(payload).digest()


def encode_envelope(envelope: Envelope) -> bytes:
    """The canonical bytes of a record."""
    payload = _packed(envelope)
    assert len(payload) <= ENVELOPE_BYTES_MAX, f"{envelope.event.kind} of {len(payload)} bytes"
    return payload


def _packed(envelope: Envelope) -> bytes:
    source = envelope.source
    event = envelope.event
    return pack(
        [
            SCHEMA,
            envelope.position,
            envelope.previous,
            envelope.fence,
            envelope.writer,
            None if source is None else [source.inbox, source.life, source.sequence],
            envelope.time_seconds,
            event.kind,
            event,
        ]
    )


def decode_envelope(payload: bytes) -> Envelope:
    """The record in these bytes. Raises Unreadable, also when they are not the canonical ones."""
    if len(payload) <= ENVELOPE_BYTES_MAX:
        envelope = compiled.read(payload, SCHEMA)
        if envelope is not None:
            return envelope
    return _decoded_plainly(payload)


def _decoded_plainly(payload: bytes) -> Envelope:
    """The definition: what is a record and what is none, and why."""
    value = unpack(payload, ENVELOPE_BYTES_MAX)
    if not isinstance(value, tuple) or len(value) != 9:
        raise Unreadable("a record is an array of nine")
    schema, position, previous, fence, writer, source, time_seconds, kind, fields = value
    _expect(_is_count(position) and position >= 1, "position")
    _expect(isinstance(previous, bytes) and len(previous) == 32, "previous")
    _expect(_is_count(fence), "fence")
    _expect(isinstance(writer, str) and len(writer) <= 64, "writer")
    _expect(isinstance(time_seconds, float) and math.isfinite(time_seconds), "time")
    if not isinstance(kind, str) or kind not in BY_KIND:
        raise Unreadable(f"{shown(kind)} is no kind of fact")
    envelope = Envelope(
        position,
        previous,
        fence,
        writer,
        None if source is None else _source(source),
        time_seconds,
        _event(schema, kind, fields),
        digest_of(payload),
    )
    if _packed(envelope) != payload:
        raise Unreadable(f"the bytes of record {position} are not in canonical form")
    return envelope


def _event(schema: Any, kind: str, fields: Any) -> Event:
    if schema != SCHEMA or isinstance(schema, bool):
        raise Unreadable(f"schema {printable(str(schema)[:20])}; this build reads schema {SCHEMA}")
    if not isinstance(fields, dict):
        raise Unreadable("the fields of an event are a map")
    try:
        return cast(Event, BY_KIND[kind].model_validate(fields))
    except ValidationError as error:
        raise Unreadable(f"{kind}: {first_fault(error)}"[:180]) from None


def _source(value: Any) -> Source:
    _expect(isinstance(value, tuple) and len(value) == 3, "source")
    inbox, life, sequence = value
    _expect(isinstance(inbox, str) and len(inbox) <= 64, "source inbox")
    _expect(isinstance(life, str) and len(life) <= 64, "source life")
    _expect(_is_count(sequence), "source sequence")
    return Source(inbox, life, sequence)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= POSITION_MAX


def _expect(holds: bool, field: str) -> None:
    if not holds:
        raise Unreadable(f"a record's {field} is not what it must be")


def _sorted(value: Any) -> Any:
    """Maps sorted by key at every depth. What holds nothing is passed by without a call."""
    if isinstance(value, dict):
        return {
            key: one if type(one := value[key]) in _LEAVES else _sorted(one)
            for key in sorted(value)
        }
    if isinstance(value, (list, tuple)):
        return [one if type(one) in _LEAVES else _sorted(one) for one in value]
    if isinstance(value, BaseModel):  # a frozen one: its fields are all that it holds
        fields, later = value.__dict__, _later(type(value))
        return {
            key: one if type(one := fields[key]) in _LEAVES else _sorted(one)
            for key in _keys(type(value))
            if key not in later or fields[key] != later[key]
        }
    return value


@lru_cache(256)
def _keys(kind: type[BaseModel]) -> tuple[str, ...]:
    return tuple(sorted(kind.model_fields))


@lru_cache(256)
def _later(kind: type[BaseModel]) -> Mapping[str, Any]:
    """Fields that came later, with their defaults: older records do not have them, so a record
    that has nothing to say in one leaves it out, and all keep the bytes that they had.
    """
    return {
        name: field.default for name, field in kind.model_fields.items() if not field.is_required()
    }


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, (tuple, dict)):
        return
    if left == 0:
        raise Unreadable("nested too deep")
    for item in value.values() if isinstance(value, dict) else value:
        if type(item) not in _LEAVES:
            _check_depth(item, left - 1)
