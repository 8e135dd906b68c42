"""The archive of a tape: cut into segments, continued after any death, checked end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from decodiloco.archive import keeper as room
from decodiloco.archive.keeper import archive
from decodiloco.archive.segments import archived, archived_to, cut, listed, read_segment
from decodiloco.errors import StoreUnreachable
from decodiloco.store.blobs import BlobStore, Part
from decodiloco.store.memory import MemoryStore
from decodiloco.store.open_store import open_store
from replay.errors import PlaceSilent, PlaceUnknown
from replay.place import find_place, open_tape
from streams.chain import Chain
from streams.codec import encode_envelope
from streams.envelope import Envelope
from streams.errors import ChainBroken, SegmentCorrupt
from streams.events import RunClosed
from streams.memory import MemoryTape
from streams.segment import FACTS_MAX, decode_segment, encode_segment
from tests.builders import RUN, closed, opened, round_opened, tape_of
from tests.real_cluster import until

TAPE = tape_of([opened(), *(round_opened(round=number) for number in range(29))])
OTHER = tape_of([opened(), *(round_opened(round=number + 1) for number in range(29))])
NOW = 0.0


def end(tape: Sequence[Envelope], position: int) -> Chain:
    """The chain of a tape as far as a position."""
    return Chain(RUN, position, tape[position - 1].digest) if position else Chain(RUN)


def put(store: BlobStore, tape: Sequence[Envelope], first: int, last: int) -> str:
    """Archives a stretch of a tape; the key of its segment."""
    key, payload = cut(end(tape, first - 1), list(tape[first - 1 : last]))
    store.put(key, [payload])
    return key


async def filled(tape: Sequence[Envelope]) -> MemoryTape:
    held = MemoryTape(RUN)
    await held.append(list(tape))
    return held


def digests(records: Sequence[Envelope]) -> list[bytes]:
    return [record.digest for record in records]


def test_a_segment_comes_back_as_it_was_cut() -> None:
    segment = decode_segment(encode_segment(end(TAPE, 4), TAPE[4:9]), "x")

    assert (segment.before, segment.first, segment.last) == (end(TAPE, 4), 5, 9)
    assert digests(segment.records) == digests(TAPE[4:9])


def test_records_that_do_not_follow_are_no_segment() -> None:
    with pytest.raises(ChainBroken, match="position 5"):
        encode_segment(end(OTHER, 4), TAPE[4:9])
    with pytest.raises(ChainBroken, match="position 6"):
        encode_segment(end(TAPE, 4), [TAPE[4], TAPE[6]])


@given(st.data())
def test_any_byte_of_a_segment_that_is_changed_cut_or_added_is_noticed(data: st.DataObject) -> None:
    whole = encode_segment(end(TAPE, 4), TAPE[4:7])
    place = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "add"]))
    if how == "flip":
        bad = bytearray(whole)
        bad[place] ^= 1 << data.draw(st.integers(0, 7))
        changed = bytes(bad)
    else:
        changed = whole[:place] if how == "cut" else whole[:place] + b"\0" + whole[place:]

    with pytest.raises(SegmentCorrupt, match="segment x"):
        decode_segment(changed, "x")


@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_a_segment_or_a_typed_error(payload: bytes) -> None:
    whole = encode_segment(end(TAPE, 0), TAPE[:1])
    for bad in (payload, whole[:60] + payload):
        with pytest.raises(SegmentCorrupt):
            decode_segment(bad, "x")


def test_what_was_archived_comes_back_whole_and_ends_where_the_tape_did() -> None:
    store = MemoryStore("archive")
    for first, last in ((1, 7), (8, 8), (9, 30)):
        put(store, TAPE, first, last)

    assert digests(list(archived(store, RUN))) == digests(TAPE)
    assert archived_to(store, RUN) == end(TAPE, 30)


def test_an_empty_archive_holds_nothing() -> None:
    store = MemoryStore("empty")

    assert (list(archived(store, RUN)), archived_to(store, RUN)) == ([], Chain(RUN))


def test_segments_that_overlap_and_agree_are_no_fault() -> None:
    store = MemoryStore("twins")
    for first, last in ((1, 10), (1, 12), (5, 20), (13, 15), (21, 30)):
        put(store, TAPE, first, last)

    assert digests(list(archived(store, RUN))) == digests(TAPE)


def test_a_gap_is_named() -> None:
    store = MemoryStore("gap")
    put(store, TAPE, 1, 10)
    key = put(store, TAPE, 14, 30)

    with pytest.raises(SegmentCorrupt, match=rf"a gap: positions 11 to 13 .* {key}"):
        list(archived(store, RUN))


@pytest.mark.parametrize(("first", "position"), [(11, 10), (9, 8), (2, 2)])
def test_a_fork_is_named(first: int, position: int) -> None:
    store = MemoryStore("fork")
    put(store, TAPE, 1, 10)
    key = put(store, OTHER, first, 12)

    with pytest.raises(SegmentCorrupt, match=rf"forks: segment {key} .* position {position} "):
        list(archived(store, RUN))


def test_an_altered_segment_is_named_also_when_its_seal_was_made_anew() -> None:
    store = MemoryStore("altered")
    key = put(store, TAPE, 1, 10)
    other = encode_segment(end(OTHER, 0), OTHER[:10])
    blobs = MemoryStore("altered-too")
    blobs.put(key, [other])

    with pytest.raises(SegmentCorrupt, match=rf"segment {key} was altered"):
        list(archived(blobs, RUN))


def test_a_segment_under_another_position_or_run_is_refused() -> None:
    store = MemoryStore("moved")
    payload = encode_segment(end(TAPE, 10), TAPE[10:20])
    mark = blake3(payload).hexdigest()[:16]
    store.put(f"{RUN}/archive/1-{mark}", [payload])

    with pytest.raises(SegmentCorrupt, match="holds run trial from position 11"):
        read_segment(store, RUN, listed(store, RUN)[0])


@pytest.mark.parametrize("name", ["x", "01-0123456789abcdef", "5-0123", "notes/5-0123456789abcdef"])
def test_a_stranger_in_the_archive_is_named(name: str) -> None:
    store = MemoryStore("stranger")
    store.put(f"{RUN}/archive/{name}", [b"?"])

    with pytest.raises(SegmentCorrupt, match=name):
        listed(store, RUN)


def test_an_archiver_goes_on_where_the_archive_ends() -> None:
    async def story() -> None:
        store, tape = MemoryStore("goes-on"), await filled(TAPE[:12])
        first = await archive(tape, store, asyncio.Event(), NOW, once=True)
        again = await archive(tape, store, asyncio.Event(), NOW, once=True)
        await tape.append(list(TAPE[12:]))
        last = await archive(tape, store, asyncio.Event(), NOW, once=True)

        assert [one.position for one in (first, again, last)] == [12, 12, 30]
        assert [one.facts for one in (first, again, last)] == [12, 0, 18]
        assert [named.first for named in listed(store, RUN)] == [1, 13]
        assert digests(list(archived(store, RUN))) == digests(TAPE)

    asyncio.run(story())


def test_a_long_tape_is_cut_by_facts() -> None:
    async def story() -> None:
        count = FACTS_MAX + 5
        long = tape_of([opened(), *(round_opened(round=number) for number in range(count - 1))])
        store, tape = MemoryStore("long"), MemoryTape(RUN)
        for start in range(0, count, 200):
            await tape.append(long[start : start + 200])

        told = await archive(tape, store, asyncio.Event(), NOW, once=True)

        assert (told.facts, told.segments) == (count, 2)
        assert [named.first for named in listed(store, RUN)] == [1, FACTS_MAX + 1]

    asyncio.run(story())


class Losing(MemoryStore):
    """A store that keeps what it is given and says that it does not answer, once."""

    lost = False

    def put(self, key: str, parts: Sequence[Part]) -> None:
        super().put(key, parts)
        if not self.lost:
            self.lost = True
            raise StoreUnreachable("no answer in time")


def test_a_put_whose_answer_is_lost_leaves_no_second_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "ARCHIVE_LOOK_SECONDS", 0.01)

    async def story() -> None:
        store, tape, stop = Losing("losing"), await filled(TAPE[:12]), asyncio.Event()
        archiving = asyncio.create_task(archive(tape, store, stop, NOW))
        async with asyncio.timeout(20):
            await until(lambda: store.lost, "the first answer is lost")
            await tape.append(list(TAPE[12:]))
            stop.set()
            told = await archiving

        assert told.position == 30
        assert [named.first for named in listed(store, RUN)] == [1, 13]

    asyncio.run(story())


def test_a_slow_run_is_archived_too_and_a_closed_one_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "ARCHIVE_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(room, "ARCHIVE_QUIET_SECONDS", 0.05)

    async def story() -> None:
        store = MemoryStore("slow")
        whole = tape_of([opened(), round_opened(), closed()])
        tape = await filled(whole[:1])
        archiving = asyncio.create_task(archive(tape, store, asyncio.Event(), 0.02))
        async with asyncio.timeout(20):
            await until(lambda: archived_to(store, RUN).position > 0, "a fact is archived")
            await tape.append(whole[1:])
            told = await archiving

        assert isinstance(whole[-1].event, RunClosed)
        assert told.position == 3

    asyncio.run(story())


def test_an_archive_of_another_tape_is_not_gone_on_with() -> None:
    async def story() -> None:
        store = MemoryStore("another")
        put(store, OTHER, 1, 10)
        for tape, what in ((TAPE, "made again or altered"), (OTHER[:9], "lost acknowledged")):
            with pytest.raises(ChainBroken, match=f"position 10.*{what}"):
                await archive(await filled(tape), store, asyncio.Event(), NOW, once=True)
        assert len(listed(store, RUN)) == 1

    asyncio.run(story())


def test_an_archive_is_a_place_that_replay_reads(tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    put(store, TAPE, 1, 12), put(store, TAPE, 13, 30)
    here = f'nats = "nats://127.0.0.1:1"\nstore = "{store.url}"\n'
    (tmp_path / "run.toml").write_text(f'[run]\nname = "{RUN}"\n[here]\n{here}')

    for place in (f"{store.url}/{RUN}", tmp_path, tmp_path / "run.toml"):
        assert digests(list(open_tape(place))) == digests(TAPE)
    assert "no server answers" in find_place(tmp_path).note
    assert find_place(tmp_path).note.endswith(f"reading its archive in {store.url}")
    with pytest.raises(PlaceUnknown, match="no archive of a run other"):
        find_place(f"{store.url}/other")


def test_a_run_that_is_nowhere_says_where_it_was_looked_for(tmp_path: Path) -> None:
    here = f'nats = "nats://127.0.0.1:1"\nstore = "{tmp_path.as_uri()}/store"\n'
    (tmp_path / "run.toml").write_text(f'[run]\nname = "{RUN}"\n[here]\n{here}')

    with pytest.raises(PlaceSilent, match=r"no server answers .* no .*run.tape either, and no arc"):
        find_place(tmp_path)


def test_the_bytes_of_a_fact_in_the_archive_are_those_of_the_tape() -> None:
    payload = encode_segment(end(TAPE, 0), TAPE[:3])

    assert all(encode_envelope(record) in payload for record in TAPE[:3])
