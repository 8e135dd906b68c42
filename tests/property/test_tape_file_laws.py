"""Laws of tape files: there and back, and no change of any kind goes unseen."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.errors import PlaceUnknown
from replay.tape_file import Header, read_tape_file
from replay.tape_writer import open_writer
from streams.envelope import Envelope
from streams.errors import Corrupt
from tests.builders import RUN, one_of_each, tape_of

TAPE = tape_of(one_of_each())


def file_of(tape: tuple[Envelope, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tape"
        writer = open_writer(path, Header(RUN, "memory://trial"))
        writer.append(tape)
        writer.seal()
        return path.read_bytes()


def read(payload: bytes) -> tuple[Envelope, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tape"
        path.write_bytes(payload)
        return tuple(read_tape_file(path))


WHOLE = file_of(TAPE)


@given(length=st.integers(0, len(TAPE)))
def test_there_and_back(length: int) -> None:
    assert read(file_of(TAPE[:length])) == TAPE[:length]


@given(at=st.integers(0, len(WHOLE) - 1), flip=st.integers(1, 255))
def test_no_changed_byte_goes_unseen(at: int, flip: int) -> None:
    with pytest.raises(Corrupt):
        read(WHOLE[:at] + bytes([WHOLE[at] ^ flip]) + WHOLE[at + 1 :])


@given(data=st.data())
def test_no_removed_doubled_or_moved_stretch_goes_unseen(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(WHOLE) - 1))
    stop = data.draw(st.integers(start + 1, len(WHOLE)))
    to = data.draw(st.integers(0, len(WHOLE)))
    rest = WHOLE[:start] + WHOLE[stop:]
    moved = rest[:to] + WHOLE[start:stop] + rest[to:]

    for changed in (rest, WHOLE[:stop] + WHOLE[start:], moved):
        if changed != WHOLE:
            with pytest.raises(Corrupt):
                read(changed)


@given(payload=st.binary(max_size=400))
def test_any_bytes_at_all_are_corrupt(payload: bytes) -> None:
    with pytest.raises((Corrupt, PlaceUnknown)):
        read(payload)
    with pytest.raises((Corrupt, PlaceUnknown)):
        read(WHOLE[: len(WHOLE) // 2] + payload)
