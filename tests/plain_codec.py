"""Records read a second time, as plainly as can be: unpacked, checked by the models, packed again.

Knows the models and the layout of a record, and nothing of the production codec.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack
from pydantic import BaseModel

from streams.envelope import POSITION_MAX, Envelope, Source
from streams.events import BY_KIND

RECORD_BYTES_MAX = 17 * 1024


def plainly_read(payload: bytes) -> Envelope | None:
    """The record in these bytes; None where they are not the canonical bytes of one."""
    if len(payload) > RECORD_BYTES_MAX:
        return None
    try:
        value = msgpack.unpackb(payload, use_list=False)
        schema, position, previous, fence, writer, source, seconds, kind, fields = value
        assert type(value) is tuple and type(schema) is int and schema == 1
        assert counts(position) and position >= 1 and counts(fence)
        assert type(previous) is bytes and len(previous) == 32
        assert short(writer) and type(seconds) is float and math.isfinite(seconds)
        if source is not None:
            assert type(source) is tuple
            inbox, life, sequence = source
            assert short(inbox) and short(life) and counts(sequence)
        assert type(fields) is dict
        event: Any = BY_KIND[kind].model_validate(fields)
    except (AssertionError, KeyError, TypeError, ValueError, RecursionError):
        return None
    except msgpack.exceptions.UnpackException:
        return None
    again = [schema, position, previous, fence, writer, source, seconds, kind, plain(event)]
    if msgpack.packb(again) != payload:
        return None
    stands = None if source is None else Source(*source)
    return Envelope(position, previous, fence, writer, stands, seconds, event)


def plain(value: Any) -> Any:
    """Models as maps sorted by key, without what says no more than its default."""
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if not isinstance(value, BaseModel):
        return value
    fields = type(value).model_fields
    told = {name: getattr(value, name) for name in sorted(fields)}
    return {
        name: plain(one)
        for name, one in told.items()
        if fields[name].is_required() or one != fields[name].default
    }


def counts(value: object) -> bool:
    return type(value) is int and 0 <= value <= POSITION_MAX


def short(value: object) -> bool:
    return type(value) is str and len(value) <= 64
