"""A tape file: strict to read, append-only to write, continued after any death."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from replay.errors import PlaceUnknown, TapeCorrupt, TapeFileBusy, Unwritable
from replay.tape_file import (
    HASHED_AT_ONCE,
    MAGIC,
    Header,
    encode_header,
    read_header,
    read_tape_file,
)
from replay.tape_writer import open_writer
from streams.codec import encode_envelope
from streams.envelope import Envelope
from streams.errors import ChainBroken, Corrupt
from streams.framing import SEAL_BYTES, encode_record
from tests.builders import RUN, joined, offered, one_of_each, opened, tape_of

HEADER = Header(RUN, "file:///somewhere/store")
SMALL = tape_of((opened(), joined(), offered()))


def written(path: Path, tape: tuple[Envelope, ...] = SMALL) -> Path:
    writer = open_writer(path, HEADER)
    writer.append(tape)
    writer.seal()
    return path


def parts_of(tape: tuple[Envelope, ...], whole: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Header, records and seal of a file."""
    records = [encode_record(encode_envelope(envelope)) for envelope in tape]
    return encode_header(HEADER), records, whole[-SEAL_BYTES:]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    tape = tape_of(one_of_each())

    path = written(tmp_path / "run.tape", tape)

    assert tuple(read_tape_file(path)) == tape
    assert [each.digest for each in read_tape_file(path)] == [each.digest for each in tape]
    assert read_header(path) == HEADER


def test_the_same_tape_gives_the_same_bytes_however_it_was_written(tmp_path: Path) -> None:
    tape = tape_of(one_of_each())
    at_once = written(tmp_path / "at_once.tape", tape)

    for number in range(len(tape)):
        writer = open_writer(tmp_path / "piecewise.tape", HEADER)
        writer.append(tape[number : number + 1])
        writer.seal()

    assert (tmp_path / "piecewise.tape").read_bytes() == at_once.read_bytes()


def test_a_tape_that_is_hashed_in_many_goes_is_continued_and_read_again(tmp_path: Path) -> None:
    at_once = HASHED_AT_ONCE // 2  # a record is two pieces, the first of them its length
    words = (offered(said=said) for said in range(1, 2 * at_once + 7))
    tape = tape_of([opened(), joined(), *words])
    path = written(tmp_path / "run.tape", tape[: at_once + 3])

    writer = open_writer(path, HEADER)
    writer.append(tape[at_once + 3 :])
    writer.seal()

    assert tuple(read_tape_file(path)) == tape


def test_any_changed_byte_is_corrupt(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    whole = path.read_bytes()

    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x01]) + whole[at + 1 :])
        with pytest.raises(Corrupt):
            tuple(read_tape_file(path))


def test_a_changed_byte_names_its_record_or_the_next(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    whole = path.read_bytes()
    header, records, _ = parts_of(SMALL, whole)
    start = len(header) + len(records[0])

    for at in range(start, start + len(records[1])):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(Corrupt, match=r"position [23]\b"):
            tuple(read_tape_file(path))


def test_a_file_cut_anywhere_is_corrupt(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    whole = path.read_bytes()

    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(TapeCorrupt):
            tuple(read_tape_file(path))


@pytest.mark.parametrize("removed", range(len(SMALL)))
def test_a_removed_record_is_named(tmp_path: Path, removed: int) -> None:
    path = written(tmp_path / "run.tape")
    header, records, seal = parts_of(SMALL, path.read_bytes())

    path.write_bytes(header + b"".join(records[:removed] + records[removed + 1 :]) + seal)

    with pytest.raises(Corrupt, match=f"position {removed + 1}"):
        tuple(read_tape_file(path))


@pytest.mark.parametrize(("one", "other"), [(0, 1), (0, 2), (1, 2)])
def test_swapped_records_are_named(tmp_path: Path, one: int, other: int) -> None:
    path = written(tmp_path / "run.tape")
    header, records, seal = parts_of(SMALL, path.read_bytes())

    records[one], records[other] = records[other], records[one]
    path.write_bytes(header + b"".join(records) + seal)

    with pytest.raises(ChainBroken, match=f"position {one + 1}"):
        tuple(read_tape_file(path))


def test_a_file_without_its_seal_says_how_to_go_on(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "run.tape", HEADER)
    writer.append(SMALL)
    writer.close()

    with pytest.raises(TapeCorrupt, match=r"position 4: .*without a seal.*replay record"):
        tuple(read_tape_file(tmp_path / "run.tape"))


def test_bytes_after_the_seal_are_corrupt(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    path.write_bytes(path.read_bytes() + b"\0")

    with pytest.raises(TapeCorrupt, match="after the seal"):
        tuple(read_tape_file(path))


def test_another_runs_header_does_not_fit_the_chain(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    _, records, seal = parts_of(SMALL, path.read_bytes())
    path.write_bytes(encode_header(Header("other", HEADER.store)) + b"".join(records) + seal)

    with pytest.raises(ChainBroken, match="position 1"):
        tuple(read_tape_file(path))


def test_another_store_in_the_header_does_not_fit_the_seal(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    _, records, seal = parts_of(SMALL, path.read_bytes())
    path.write_bytes(encode_header(Header(RUN, "file:///elsewhere")) + b"".join(records) + seal)

    with pytest.raises(TapeCorrupt, match="seal"):
        tuple(read_tape_file(path))


def test_a_later_version_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    path.write_bytes(MAGIC + b"\x00\x02" + bytes(4))

    with pytest.raises(TapeCorrupt, match="version 2; this build reads 1"):
        read_header(path)


def test_a_file_that_is_not_there_is_no_known_place(tmp_path: Path) -> None:
    with pytest.raises(PlaceUnknown, match="No such file"):
        tuple(read_tape_file(tmp_path / "none.tape"))


def test_a_torn_tail_is_cut_back_to_the_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    sealed = written(path).read_bytes()
    header, records, _ = parts_of(SMALL, sealed)
    bounds = [len(header), *itertools.accumulate(map(len, records), initial=len(header))][1:]

    for length in range(len(header), len(sealed), 3):
        path.write_bytes(sealed[:length])
        writer = open_writer(path, HEADER)
        there = writer.chain.position
        assert there == sum(bound <= length for bound in bounds[1:])
        assert writer.torn_bytes == length - bounds[there]
        writer.append(SMALL[there:])
        writer.seal()
        assert path.read_bytes() == sealed


def test_room_that_a_power_cut_left_blank_is_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    sealed = written(path).read_bytes()
    path.write_bytes(sealed[:-SEAL_BYTES] + bytes(5000))

    writer = open_writer(path, HEADER)

    assert (writer.chain.position, writer.torn_bytes) == (3, 5000)
    writer.seal()
    assert path.read_bytes() == sealed


def test_a_file_that_is_only_opened_stays_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    whole = path.read_bytes()

    open_writer(path, HEADER).close()
    assert path.read_bytes() == whole
    open_writer(path, HEADER).seal()
    assert path.read_bytes() == whole


def test_a_record_that_does_not_follow_is_never_written(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape", SMALL[:1])
    whole = path.read_bytes()
    writer = open_writer(path, HEADER)

    with pytest.raises(ChainBroken, match="position 2"):
        writer.append(SMALL[2:])

    writer.close()
    assert path.read_bytes() == whole


def test_a_corrupt_file_is_not_continued(tmp_path: Path) -> None:
    path = written(tmp_path / "run.tape")
    whole = bytearray(path.read_bytes())
    whole[len(encode_header(HEADER)) + 60] ^= 1
    path.write_bytes(whole)

    with pytest.raises(Corrupt):
        open_writer(path, HEADER)
    assert path.read_bytes() == bytes(whole)


def test_one_process_at_a_time_records_into_a_file(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "run.tape", HEADER)

    with pytest.raises(TapeFileBusy, match="another process"):
        open_writer(tmp_path / "run.tape", HEADER)

    writer.close()
    open_writer(tmp_path / "run.tape", HEADER).close()


def test_a_folder_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="No such file or directory"):
        open_writer(tmp_path / "none" / "run.tape", HEADER)
