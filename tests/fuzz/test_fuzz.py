"""A small part of each room of `make fuzz`, and the worst that a size allows."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from decodiloco.errors import BlobCorrupt
from decodiloco.store.header import parse_header
from streams.codec import EVENT_BYTES_MAX, decode_word
from streams.errors import Unreadable
from streams.events import WORDS
from tests.fuzz.__main__ import ROOMS
from tests.fuzz.blobs import with_length
from tests.fuzz.campaign import campaign
from tests.fuzz.messages import sound_words

PART = 500  # of what `make fuzz` runs: seconds, not minutes


@pytest.mark.parametrize("name", ROOMS)
def test_whatever_is_handed_over_is_read_or_refused(name: str) -> None:
    room, count = ROOMS[name]
    found = campaign(room(), seed=2, count=max(60, count // PART))
    print("\n".join(found.told()))
    assert found.faults == []
    assert len(found.outcomes) > 1


def test_every_word_is_bent() -> None:
    assert {type(sound.word) for sound in sound_words()} == set(WORDS)


HEADERS = {
    "lists": lambda size: b"[" + b"[]," * (size // 3) + b"0]",
    "tables": lambda size: b"[" + b"{}," * (size // 3) + b"0]",
    "texts": lambda size: b"[" + b'"aa",' * (size // 5) + b"0]",
    "keys": lambda size: b"{" + b",".join(b'"%d":0' % each for each in range(size // 11)) + b"}",
    "one number": lambda size: b"[" + b"9" * size + b"]",
    "depth": lambda size: b"[" * size,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_takes_memory_in_proportion_to_its_bytes(name: str) -> None:
    for size in (2**16, 2**20):
        payload = with_length(HEADERS[name](size))
        tracemalloc.start()
        with pytest.raises(BlobCorrupt):
            parse_header(payload, "a blob")
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert held < 32 * size, f"{held} bytes held for {size}"


@pytest.mark.parametrize("filling", [b"\x90", b"\x80", b"\xa0", b"\xc0", b"\x81\xc0\xc0", b"\x91"])
def test_the_longest_word_of_nothing_is_refused_at_once(filling: bytes) -> None:
    count = (EVENT_BYTES_MAX - 3) // len(filling)
    payload = b"\xdc" + count.to_bytes(2, "big") + filling * count
    began = time.thread_time()
    for _ in range(20):
        with pytest.raises(Unreadable):
            decode_word(payload)
    assert time.thread_time() - began < 20 * 0.1
