"""The chain: each record carries the digest of the one before."""

from __future__ import annotations

import pytest

from streams.chain import Chain
from streams.codec import digest_of, encode_envelope, seal
from streams.envelope import genesis
from streams.errors import ChainBroken
from tests.builders import RUN, closed, digest, joined, offered, opened, tape_of, took_over

TAPE = tape_of([opened(), took_over(), joined(), offered(), closed()])


def test_a_records_digest_is_that_of_its_bytes() -> None:
    for envelope in TAPE:
        assert envelope.digest == digest_of(encode_envelope(envelope))


def test_the_first_record_carries_the_digest_of_its_run() -> None:
    assert TAPE[0].previous == genesis(RUN)
    assert genesis(RUN) != genesis("other")


def test_a_sound_tape_is_a_chain() -> None:
    chain = Chain(RUN)
    for envelope in TAPE:
        assert chain.tip == envelope.previous
        chain = chain.then(envelope)
    assert (chain.position, chain.digest) == (5, TAPE[-1].digest)


def test_a_tape_of_another_run_breaks_at_its_first_record() -> None:
    with pytest.raises(ChainBroken, match="position 1") as broken:
        Chain("other").then(TAPE[0])
    assert broken.value.position == 1


def test_a_record_left_out_breaks_the_chain_where_it_is_missing() -> None:
    chain = Chain(RUN).then(TAPE[0]).then(TAPE[1])
    with pytest.raises(ChainBroken, match="breaks at position 3: a record numbered 4"):
        chain.then(TAPE[3])


def test_a_changed_record_breaks_the_chain_after_it() -> None:
    one = TAPE[1]
    forged = seal(2, one.previous, 1, "syncer-2", None, one.time_seconds, one.event)
    chain = Chain(RUN).then(TAPE[0]).then(forged)
    with pytest.raises(ChainBroken, match="position 3: it does not carry the digest"):
        chain.then(TAPE[2])


def test_a_record_cannot_stand_before_the_first() -> None:
    with pytest.raises(AssertionError):
        seal(0, digest("parent"), 0, "syncer-1", None, 0.0, opened())
