"""Laws of the codec: there and back, one form only, and any bytes give a fact or Unreadable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.codec import (
    decode_envelope,
    decode_word,
    digest_of,
    encode_envelope,
    encode_event,
    pack,
    unpack,
)
from streams.envelope import Envelope
from streams.errors import Unreadable
from streams.events import Word
from tests import strategies


@given(strategies.envelopes)
def test_an_envelope_comes_back_from_its_bytes(envelope: Envelope) -> None:
    payload = encode_envelope(envelope)
    back = decode_envelope(payload)
    assert repr(back) == repr(envelope)
    assert back.digest == digest_of(payload)
    assert encode_envelope(back) == payload


@given(strategies.words)
def test_a_word_comes_back_from_its_bytes(word: Word) -> None:
    payload = encode_event(word)
    back = decode_word(payload)
    assert repr(back) == repr(word)
    assert encode_event(back) == payload


@given(strategies.any_bytes | strategies.oversized_bytes)
def test_any_bytes_give_a_word_or_unreadable(payload: bytes) -> None:
    try:
        word = decode_word(payload)
    except Unreadable:
        return
    assert decode_word(encode_event(word)) == word


@given(strategies.any_bytes | strategies.oversized_bytes)
def test_any_bytes_give_an_envelope_or_unreadable(payload: bytes) -> None:
    try:
        envelope = decode_envelope(payload)
    except Unreadable:
        return
    assert encode_envelope(envelope) == payload


@given(strategies.words, st.data())
def test_a_word_with_a_changed_byte_is_a_word_or_unreadable(
    word: Word, data: st.DataObject
) -> None:
    spoiled = _spoiled(encode_event(word), data)
    try:
        decode_word(spoiled)
    except Unreadable:
        return


@given(strategies.envelopes, st.data())
def test_a_changed_byte_never_gives_the_same_digest(
    envelope: Envelope, data: st.DataObject
) -> None:
    spoiled = _spoiled(encode_envelope(envelope), data)
    try:
        other = decode_envelope(spoiled)
    except Unreadable:
        return
    assert other.digest != envelope.digest
    assert encode_envelope(other) == spoiled


@given(strategies.envelopes, st.data())
def test_a_cut_record_is_unreadable(envelope: Envelope, data: st.DataObject) -> None:
    payload = encode_envelope(envelope)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        decode_envelope(cut)
    except Unreadable:
        return
    raise AssertionError("a part of a record was read as a record")


@given(st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=6), st.randoms())
def test_the_order_of_a_map_leaves_no_trace(value: dict[str, int], random: object) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert pack({key: value[key] for key in keys}) == pack(value)


@given(strategies.plain_values)
def test_plain_values_are_packed_in_one_form(value: object) -> None:
    try:
        once = unpack(pack(value), 100_000)
    except Unreadable:
        return
    assert pack(once) == pack(value)


def _spoiled(payload: bytes, data: st.DataObject) -> bytes:
    """The same bytes with one of them another."""
    place = data.draw(st.integers(0, len(payload) - 1))
    change = data.draw(st.integers(1, 255))
    return payload[:place] + bytes([payload[place] ^ change]) + payload[place + 1 :]
