"""Blobs made piece by piece: in memory or in a file that has no name, the bytes are the same."""

from __future__ import annotations

import resource
import tempfile
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import TypeVar

import numpy as np
import pytest

from decodiloco.errors import StoreUnreachable
from decodiloco.fragments.layout import Tensor
from decodiloco.merge.fragment import Merged, merge_fragment
from decodiloco.store import aside
from decodiloco.store.aside import File, Memory, Room, Spare
from decodiloco.store.blobs import Body, Late, LateParts, Part
from decodiloco.store.growing import BEHIND_MAX, Growing
from decodiloco.store.header import CHUNK_BYTES, parse_header
from decodiloco.store.keys import global_key
from decodiloco.store.local import LocalStore
from decodiloco.store.tensors import Encoded, encode_tensors, headed, read_tensors
from tests.merge_orders import RUN, Arrays, FragmentBench, digests, filled, numbers, tensor
from tests.merge_orders import TENSORS as SHORT

T = TypeVar("T")

PIECE = 300_001
TENSORS = {
    "a": numbers(CHUNK_BYTES // 4 + 77, 1).reshape(-1),
    "b": numbers(1, 2).reshape(()),
    "c": np.empty((3, 0), np.float32),
    "d": numbers(CHUNK_BYTES // 2, 3).reshape(2, -1),
}


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """All that is made waits in files of this folder."""
    monkeypatch.setattr(aside, "HELD_BYTES_MAX", -1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process holds open, named or not."""
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [link for link in links if link.startswith(str(folder))]


def grown(tensors: Arrays) -> Growing:
    """The tensors, last piece first, each kept and read again before it is settled."""
    with ThreadPoolExecutor(2) as pool:
        blob = Growing({name: each.shape for name, each in tensors.items()}, pool.submit)
        for name, array in tensors.items():
            flat, room = array.reshape(-1), blob.tensor(name)
            assert room.elements == array.size
            for start in reversed(range(0, array.size, PIECE)):
                piece = room.lend(start, min(start + PIECE, array.size))
                piece[...] = flat[start : start + PIECE] + 1
                room.keep(start, piece)
                again = room.kept(start, start + len(piece))
                again -= 1
                room.settle(start, again)
    return blob


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_blob_that_grew_is_the_blob_of_its_tensors(
    where: str, request: pytest.FixtureRequest
) -> None:
    if where == "file":
        request.getfixturevalue("in_files")
    exact = {name: (each + 1) - 1 for name, each in TENSORS.items()}
    wanted = encode_tensors(exact, "fp32")

    made = grown(exact).encoded()

    assert made.manifest == wanted.manifest
    assert b"".join(made.parts) == b"".join(wanted.parts)
    assert isinstance(made.parts, LateParts) == (where == "file")


def test_a_file_has_no_name_and_is_gone_with_the_last_who_looks_at_it(in_files: Path) -> None:
    parts = grown(TENSORS).encoded().parts
    assert not list(in_files.iterdir()) and len(open_files(in_files)) == 1

    payload = parts[1:]
    del parts
    assert bytes(payload[0][:4]) == TENSORS["a"][:1].tobytes()

    del payload
    assert not open_files(in_files)


def test_an_element_that_was_never_settled_is_no_blob() -> None:
    blob = Growing({"a": (8,)}, lambda work: pytest.fail("nothing is whole"))
    room = blob.tensor("a")
    room.settle(0, room.lend(0, 4))
    with pytest.raises(AssertionError, match="never settled"):
        blob.encoded()
    with pytest.raises(AssertionError, match="settled twice"):
        room.settle(0, room.lend(0, 8))


@pytest.mark.parametrize("room", [Memory(40), File(40)], ids=["memory", "file"])
def test_a_room_gives_back_what_was_kept_last(room: Room) -> None:
    for value in (1, 2):
        lent = room.lend(8, 24)
        lent[...] = value
        room.keep(8, lent)
    assert room.read(8, 24).tolist() == [2] * 16


@pytest.mark.parametrize("room", [Memory(9000), File(9000)], ids=["memory", "file"])
def test_what_a_room_shows_is_not_to_be_written_to(room: Room) -> None:
    lent = room.lend(5000, 9000)
    lent[...] = np.arange(4000) % 251
    room.keep(5000, lent)

    shown = room.look(5001, 9000)

    assert shown.readonly and bytes(shown) == bytes(lent[1:])


def test_memory_is_lent_again_once_nobody_looks_at_it() -> None:
    spare = Spare(100)
    first = spare.lent(40)
    first[...] = 7
    place, view = first.ctypes.data, first[8:].data
    del first
    assert spare.lent(40).ctypes.data != place, "somebody looks at the first"

    del view

    again = spare.lent(30)
    assert again.ctypes.data == place and again.tolist() == [7] * 30


def test_of_memory_that_came_back_no_more_is_kept_than_may_be() -> None:
    spare = Spare(100)
    lent = [spare.lent(40) for _ in range(3)]
    places = {each.ctypes.data for each in lent}
    lent.clear()

    again = [spare.lent(40) for _ in range(2)]

    assert len(places) == 3 and {each.ctypes.data for each in again} < places
    assert spare.kept_bytes == 0


def test_memory_that_is_far_too_long_is_let_go() -> None:
    spare = Spare(100)
    spare.lent(90)
    assert spare.kept_bytes == 90

    short = spare.lent(40)

    assert len(short) == 40 and spare.kept_bytes == 0


def test_what_is_made_waits_for_a_file_that_is_far_behind(in_files: Path) -> None:
    works: Queue[Callable[[], None]] = Queue()

    def later(work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        works.put(lambda: done.set_result(work()))
        return done

    elements = 2_200_000  # two chunks: one alone is written and digested at once
    blob = Growing({"a": (elements,)}, later)
    room, pieces = blob.tensor("a"), BEHIND_MAX + 2
    length = elements // pieces + 1

    def make() -> None:
        for start in range(0, elements, length):
            room.settle(start, room.lend(start, min(start + length, elements)))

    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(make)
        begun = [works.get(timeout=10) for _ in range(BEHIND_MAX)]
        with pytest.raises(TimeoutError):
            made.result(timeout=0.1)
        assert works.empty()
        for work in begun:
            work()
        made.result(timeout=10)
    while not works.empty():
        works.get()()

    assert blob.encoded().manifest.bytes > 4 * elements


class Counted:
    """Late parts, and how many of them are in memory at once."""

    def __init__(self, sizes: list[int]) -> None:
        self.alive = self.most = 0
        self.parts = LateParts([self._late(place, size) for place, size in enumerate(sizes)])
        self.whole = b"".join(bytes([place]) * size for place, size in enumerate(sizes))

    def _late(self, place: int, size: int) -> Late:
        def get() -> Part:
            part = np.full(size, place, np.uint8)
            weakref.finalize(part, self._gone)
            self.alive += 1
            self.most = max(self.most, self.alive)
            return part.data

        return size, get

    def _gone(self) -> None:
        self.alive -= 1


def test_late_parts_are_laid_end_to_end_and_got_when_they_are_needed() -> None:
    counted = Counted([3, 0, 5, 7])
    body = Body(counted.parts)

    assert body.nbytes == 15 and counted.most == 0
    for start in range(16):
        for stop in range(start, 16):
            assert body.cut(start, stop) == counted.whole[start:stop]
    assert b"".join(bytes(view) for view in body) == counted.whole
    assert [bytes(part) for part in counted.parts[2:]] == [b"\2" * 5, b"\3" * 7]


def test_a_folder_takes_late_parts_one_by_one(tmp_path: Path) -> None:
    counted = Counted([1000] * 20)
    store = LocalStore(tmp_path)

    store.put("run/late", counted.parts)

    assert store.read("run/late", 0, 20_000) == counted.whole
    assert counted.most <= 2


def lying(delta: Arrays) -> Encoded:
    """A delta whose header tells another sum of squares than its last tensor has."""
    honest = encode_tensors(delta, "bf16", squares=True)
    header = parse_header(bytes(honest.parts[0]), "delta")
    assert header.squares is not None
    named = [(each.name, each.dtype, each.shape) for each in header.entries]
    start, manifest = headed(named, header.chunks, "bf16", (*header.squares[:-1], 0.5))
    return Encoded((start, *honest.parts[1:]), manifest)


LONG = (tensor("long", (2_200_000,)), tensor("other", (900,), rule="trimmed"), tensor("s", ()))


def test_a_version_that_waited_in_a_file_is_stored_from_there(
    in_files: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = FragmentBench("stored-late", LONG)
    order = bench.order({"a": filled(1, tensors=LONG), "b": filled(2, tensors=LONG)})
    merged = merge_fragment(order, bench.store)
    assert isinstance(merged, Merged)
    store = LocalStore(tmp_path_factory.mktemp("store"))

    for key, parts in merged.blobs(order):
        store.put(key, parts)

    key = global_key(RUN, 0, 1, merged.parameters.manifest)
    assert [*read_tensors(store, key, merged.parameters.manifest)] == ["long", "other", "s"]


def test_a_merge_gives_the_same_bytes_in_memory_and_in_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = FragmentBench("aside", LONG)
    deltas = {f"l{place}": filled(place + 1, tensors=LONG) for place in range(4)}
    order = bench.order({**deltas, "liar": lying(filled(9, tensors=LONG))})
    held = merge_fragment(order, bench.store)

    monkeypatch.setattr(aside, "HELD_BYTES_MAX", -1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = [merge_fragment(order, bench.store, threads=threads) for threads in (1, 3)]

    assert isinstance(held, Merged) and len(held.left_out) == 1
    assert all(isinstance(each, Merged) for each in made)
    assert [digests(each) for each in made if isinstance(each, Merged)] == [digests(held)] * 2
    made.clear()
    assert not open_files(tmp_path), "the files of passes that came to nothing are gone, too"


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("tensors", [SHORT, LONG], ids=["one-chunk", "two-chunks"])
def test_no_room_is_told_with_its_folder_and_is_no_fault_of_a_delta(
    in_files: Path, tensors: tuple[Tensor, ...]
) -> None:
    bench = FragmentBench(f"no-room-{len(tensors[0].name)}", tensors)
    order = bench.order({name: filled(place, tensors=tensors) for place, name in enumerate("ab")})
    with (
        files_of_at_most(1000),
        pytest.raises(StoreUnreachable, match=f"{in_files}: File too large; free .* TMPDIR"),
    ):
        merge_fragment(order, bench.store)


def test_a_folder_that_is_not_there_is_told(in_files: Path) -> None:
    tempfile.tempdir = str(in_files / "gone")
    with pytest.raises(StoreUnreachable, match="gone: No such file"):
        File(40)
