"""Bytes and facts: the limits, and what is refused with which words."""

from __future__ import annotations

import msgpack
import pytest

from streams.codec import (
    DEPTH_MAX,
    ENVELOPE_BYTES_MAX,
    EVENT_BYTES_MAX,
    decode_envelope,
    decode_word,
    encode_envelope,
    encode_event,
    pack,
    unpack,
)
from streams.envelope import Source
from streams.errors import Unreadable
from streams.events import Event
from tests.builders import (
    adopted,
    evaluated,
    joined,
    left_out,
    merged,
    offered,
    one_of_each,
    sealed,
)


def packed(value: object) -> bytes:
    return bytes(msgpack.packb(value, use_bin_type=True))


def fields_of(event: Event, **changes: object) -> dict[str, object]:
    return {**event.model_dump(), **changes}


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.kind)
def test_every_kind_of_fact_comes_back_from_its_bytes(event: Event) -> None:
    envelope = sealed(event, 9, Source("home", "life", 4))
    payload = encode_envelope(envelope)
    back = decode_envelope(payload)
    assert back == envelope
    assert back.digest == envelope.digest
    assert encode_envelope(back) == payload


def test_a_word_comes_back_from_its_bytes() -> None:
    word = offered("b", fragment=2, adopted=(adopted(1), adopted(2, 3)))
    assert decode_word(encode_event(word)) == word


def test_maps_are_sorted_at_every_depth() -> None:
    one = {"b": [{"y": 1, "x": 2}], "a": 0}
    other = {"a": 0, "b": [{"x": 2, "y": 1}]}
    assert pack(one) == pack(other)


def test_a_fact_that_only_the_syncer_states_is_no_word() -> None:
    with pytest.raises(Unreadable, match="'fragment_merged' is nothing that can be said"):
        decode_word(encode_event(merged()))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (packed([1, "learner_left"]), "an array of schema, kind and fields"),
        (packed({"a": 1}), "an array of schema, kind and fields"),
        (packed([1, ["x"], {}]), "nothing that can be said"),
        (packed([1, {"x": 1}, {}]), "nothing that can be said"),
        (packed([1, "no_such_kind", {}]), "'no_such_kind' is nothing that can be said"),
        (packed([2, "run_closing", {}]), "schema 2; this build reads schema 1"),
        (packed([True, "run_closing", {}]), "schema True"),
        (packed([1, "run_closing", []]), "the fields of an event are a map"),
        (packed([1, "run_closing", {}]), "run_closing: speaker: Field required"),
        (packed([1, "run_closing", {1: 2}]), "not msgpack"),
    ],
)
def test_bytes_that_are_no_word_are_unreadable_and_say_why(payload: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        decode_word(payload)


def test_an_unknown_field_is_refused() -> None:
    payload = packed([1, "learner_joined", fields_of(joined(), colour="red")])
    with pytest.raises(Unreadable, match="learner_joined: colour: Extra inputs"):
        decode_word(payload)


def test_a_number_of_the_wrong_kind_is_refused() -> None:
    for changes in ({"said": 1.0}, {"said": True}, {"said": "1"}, {"loss": "low"}):
        with pytest.raises(Unreadable):
            decode_word(packed([1, "delta_offered", fields_of(offered(), **changes)]))


def test_a_loss_that_is_no_number_reaches_the_gate_in_an_offer_only() -> None:
    word = offered(loss=float("nan"))
    assert repr(decode_word(encode_event(word))) == repr(word)
    spoiled = packed([1, "evaluation_reported", fields_of(evaluated(), loss=float("inf"))])
    with pytest.raises(Unreadable, match="finite"):
        decode_word(spoiled)


def test_counters_may_be_negative_in_an_offer_and_nowhere_else() -> None:
    word = offered(tokens=-5, tokens_trained=0, inner_steps=-1)
    assert decode_word(encode_event(word)) == word
    spoiled = packed([1, "delta_offered", fields_of(offered(), said=-1)])
    with pytest.raises(Unreadable, match="said"):
        decode_word(spoiled)


def test_what_is_longer_than_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(Unreadable, match=f"of {EVENT_BYTES_MAX} allowed"):
        decode_word(b"\xc0" * (EVENT_BYTES_MAX + 1))
    with pytest.raises(Unreadable, match=f"of {ENVELOPE_BYTES_MAX} allowed"):
        decode_envelope(b"\xc0" * (ENVELOPE_BYTES_MAX + 1))


def test_a_fact_that_is_too_long_is_a_bug_of_its_writer() -> None:
    long = merged(contributions=(2**53,) * 1024, left_out=())
    assert len(encode_event(long)) <= EVENT_BYTES_MAX
    with pytest.raises(AssertionError, match="evaluation_reported of"):
        encode_event(
            evaluated(versions=(2**53,) * 1024, speaker="a" * 48, loss=1.0).model_copy(
                update={"versions": (2**53,) * 4096}
            )
        )


def test_what_is_nested_too_deep_is_refused() -> None:
    value: object = 0
    for _ in range(DEPTH_MAX):
        value = [value]
    assert unpack(packed(value), 100)
    with pytest.raises(Unreadable, match="nested"):
        unpack(packed([value]), 100)
    with pytest.raises(Unreadable):
        unpack(b"\x91" * 5000, 10_000)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (0, 2, "schema 2"),
        (1, 0, "position"),
        (1, True, "position"),
        (1, 2**60, "position"),
        (2, b"short", "previous"),
        (3, -1, "fence"),
        (4, "w" * 65, "writer"),
        (4, 7, "writer"),
        (5, ["home", "life"], "source"),
        (5, ["home", "life", -1], "source"),
        (5, [7, "life", 1], "source inbox"),
        (5, ["home", b"life", 1], "source life"),
        (6, 5, "time"),
        (7, "no_such_kind", "'no_such_kind' is no kind of fact"),
        (7, 7, "no kind of fact"),
        (7, {"x": 1}, "no kind of fact"),
        (8, 7, "a map"),
    ],
)
def test_a_record_with_one_part_wrong_says_which(place: int, value: object, why: str) -> None:
    parts = list(msgpack.unpackb(encode_envelope(sealed(offered())), raw=False))
    parts[place] = value
    with pytest.raises(Unreadable, match=why):
        decode_envelope(packed(parts))


def test_a_record_that_is_too_long_in_canonical_form_is_unreadable() -> None:
    """A float32 is shorter than the float64 it stands for, so the limit is met only as sent."""
    reasons = tuple(left_out(place, "x" * 200) for place in range(64))
    fact = merged(contributions=(2**53,) * 200, left_out=reasons)
    parts = list(msgpack.unpackb(encode_envelope(sealed(fact)), raw=False))
    room = ENVELOPE_BYTES_MAX - len(encode_envelope(sealed(fact)))
    parts[8]["contributions"] += [2**53] * (room // 9 + 1)
    payload = bytes(msgpack.packb(parts, use_bin_type=True, use_single_float=True))
    assert len(payload) <= ENVELOPE_BYTES_MAX
    with pytest.raises(Unreadable):
        decode_envelope(payload)


def test_a_record_of_another_length_is_refused() -> None:
    with pytest.raises(Unreadable, match="an array of nine"):
        decode_envelope(packed([1, 2, 3]))


def test_a_record_in_other_bytes_than_the_canonical_ones_is_refused() -> None:
    payload = encode_envelope(sealed(offered()))
    parts = msgpack.unpackb(payload, raw=False)
    parts[8] = dict(reversed(parts[8].items()))
    with pytest.raises(Unreadable, match="record 1 are not in canonical form"):
        decode_envelope(packed(parts))


def test_a_field_that_came_later_is_told_only_where_it_says_something() -> None:
    """Records from before it keep their bytes and digests, and are read as they were."""
    payload = encode_envelope(sealed(offered()))
    parts = msgpack.unpackb(payload, raw=False)
    assert "held" not in parts[8]
    parts[8] = dict(sorted({**parts[8], "held": []}.items()))
    with pytest.raises(Unreadable, match="not in canonical form"):
        decode_envelope(packed(parts))
    held = sealed(offered(held=(adopted(2),)))
    assert decode_envelope(encode_envelope(held)) == held
