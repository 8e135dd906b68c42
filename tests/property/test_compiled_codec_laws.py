"""The compiled decoder reads what the definition reads: no record more, and the same facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streams import codec, compiled
from streams.codec import SCHEMA, decode_envelope, encode_envelope, pack, pack_plain
from streams.envelope import Envelope, Source
from streams.errors import Unreadable
from streams.events import EVENTS, Event, Fact
from tests import strategies
from tests.builders import lost, offered, one_of_each, sealed
from tests.plain_codec import plainly_read

ODD = (
    True, False, None, 0, -1, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 1.0, 0.0, -0.0, 1.5,
    math.inf, -math.inf, math.nan, "", "a", "a\n", "A", "é", "a" * 49, "a" * 201, b"", b"a",
    b"x" * 32, b"x" * 33, b"x" * 1025, (), (1,), (1, "a"), {}, {"a": 1}, ((((1,),),),),
)  # fmt: skip
unhurried = settings(  # twins are made at first need
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)


def told(payload: bytes) -> str:
    """All that can be seen of what a decoder makes of these bytes."""
    try:
        return seen(decode_envelope(payload))
    except Unreadable as error:
        return f"unreadable: {error}"


def told_by_definition(payload: bytes) -> str:
    try:
        return seen(codec._decoded_plainly(payload))
    except Unreadable as error:
        return f"unreadable: {error}"


def seen(envelope: Envelope) -> str:
    event = envelope.event
    return repr((envelope, envelope.digest, sorted(event.model_fields_set), event.model_dump()))


def agree(payload: bytes) -> None:
    """The three ways to read give the same fact, or refuse it with the same words."""
    ours, plain = told(payload), plainly_read(payload)
    assert ours == told_by_definition(payload)
    assert ours.startswith("unreadable") == (plain is None)
    if plain is not None:
        assert repr(decode_envelope(payload)) == repr(plain)


@unhurried
@given(strategies.envelopes)
def test_every_sound_record_is_read_by_the_compiled_decoder(envelope: Envelope) -> None:
    payload = encode_envelope(envelope)
    found = compiled.read(payload, SCHEMA)
    assert found is not None and seen(found) == seen(codec._decoded_plainly(payload))
    agree(payload)


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.kind)
def test_each_kind_of_fact_is_read_by_the_compiled_decoder(event: Event) -> None:
    found = compiled.read(encode_envelope(sealed(event, 9, Source("home", "life", 4))), SCHEMA)
    assert found is not None and found.event == event


@pytest.mark.parametrize("kind", ["", "snapshot", "Learner_lost", "learner_lost\n"])
def test_a_kind_that_is_none_is_refused_in_the_words_of_the_definition(kind: str) -> None:
    value = msgpack.unpackb(encode_envelope(sealed(lost("a"))))
    value[7] = kind
    agree(msgpack.packb(value))
    with pytest.raises(Unreadable, match="is no kind of fact"):
        decode_envelope(msgpack.packb(value))


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.kind)
def test_every_limit_of_a_kind_is_known_to_its_twin(kind: type[Fact]) -> None:
    assert [*compiled._twin(kind).__struct_fields__] == [*kind.model_fields]


def test_a_kind_that_no_twin_can_tell_is_read_by_the_definition_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = encode_envelope(sealed(offered(), 9, Source("home", "life", 4)))
    monkeypatch.setitem(compiled._LIMITS, "int", set())
    for made in (compiled._reader, compiled._twin, compiled._maker):
        monkeypatch.setattr(compiled, made.__name__, cache(made.__wrapped__))

    with pytest.warns(UserWarning, match=r"decoded slowly: pydantic .* \(Unlike: int with"):
        assert compiled.read(payload, SCHEMA) is None
    assert decode_envelope(payload) == codec._decoded_plainly(payload)


@unhurried
@given(strategies.envelopes, st.data())
def test_a_changed_byte_is_refused_by_both_in_the_same_words(
    envelope: Envelope, data: st.DataObject
) -> None:
    payload = bytearray(encode_envelope(envelope))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] ^= data.draw(st.integers(1, 255))
    agree(bytes(payload))


@unhurried
@given(strategies.any_bytes)
def test_any_bytes_are_refused_by_both_in_the_same_words(payload: bytes) -> None:
    agree(payload)


@unhurried
@given(strategies.envelopes, st.data())
def test_an_odd_value_anywhere_is_refused_by_both_in_the_same_words(
    envelope: Envelope, data: st.DataObject
) -> None:
    value = msgpack.unpackb(encode_envelope(envelope))
    holder, key = data.draw(st.sampled_from([*places(value)]))
    holder[key] = data.draw(st.sampled_from(ODD))
    agree(msgpack.packb(value))


def test_every_odd_value_in_every_place_is_refused_by_both_in_the_same_words() -> None:
    event = offered(residuals=(3,), held=())
    for place in range(len([*places(msgpack.unpackb(encode_envelope(sealed(event))))])):
        for odd in ODD:
            value = msgpack.unpackb(encode_envelope(sealed(event)))
            holder, key = [*places(value)][place]
            holder[key] = odd
            agree(msgpack.packb(value))


@unhurried
@given(strategies.envelopes, st.data())
def test_other_bytes_of_the_same_fact_are_refused_by_both_in_the_same_words(
    envelope: Envelope, data: st.DataObject
) -> None:
    value = msgpack.unpackb(encode_envelope(envelope))
    fields = value[8]
    match data.draw(st.sampled_from(["order", "default", "more", "single", "old", "behind"])):
        case "order":
            value[8] = {key: fields[key] for key in data.draw(st.permutations([*fields]))}
        case "default":
            later = type(envelope.event).model_fields
            absent = {key: later[key].default for key in later if key not in fields}
            value[8] = dict(sorted({**fields, **absent}.items()))
        case "more":
            fields[data.draw(st.text(max_size=3))] = 1
        case "single":
            with suppress(OverflowError):  # of a number that no float32 is near
                agree(msgpack.packb(value, use_single_float=True))
        case "old":
            agree(msgpack.packb(value, use_bin_type=False))
        case "behind":
            agree(msgpack.packb(value) + data.draw(st.binary(max_size=3)))
    agree(msgpack.packb(value))


@pytest.mark.parametrize("event", [lost(why="x"), offered(residuals=(3,))], ids=("text", "tuple"))
def test_a_default_that_is_told_all_the_same_is_refused(event: Event) -> None:
    value = msgpack.unpackb(encode_envelope(sealed(event)))
    value[8] |= {"why": ""} if "why" in value[8] else {"residuals": []}
    payload = msgpack.packb(value)
    assert compiled.read(payload, SCHEMA) is None
    agree(payload)


def test_a_key_told_twice_is_refused() -> None:
    payload = encode_envelope(sealed(lost("a")))
    twice = payload.replace(b"\x84\xabincarnation\x03", b"\x85\xabincarnation\x03" * 2, 1)
    assert twice != payload
    agree(twice.replace(b"\x85\xabincarnation\x03\x85", b"\x85\xabincarnation\x03", 1))


@unhurried
@given(strategies.plain_values.filter(lambda value: not isinstance(value, dict)))
@example([-1, -32, -33, -129, -32769, -(2**31) - 1, 127, 128, 255, 256, 65535, 65536, 2**32])
@example(["x" * 31, "x" * 32, "x" * 255, "x" * 256, b"x" * 255, b"x" * 256, [0] * 15, [0] * 16])
def test_plain_values_have_the_same_bytes_from_either_packer(value: object) -> None:
    if not holds_a_map(value):
        assert pack_plain(value) == pack(value)


def holds_a_map(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(holds_a_map(one) for one in value)
    return isinstance(value, dict)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in arrays and maps, at any depth: what holds it, and under which key."""
    for key in range(len(value)) if isinstance(value, list) else [*value]:
        yield value, key
        if isinstance(value[key], (list, dict)):
            yield from places(value[key])
