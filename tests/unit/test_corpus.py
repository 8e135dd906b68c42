"""Text as byte tokens: what is read, what is held out, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from decodiloco.config import Training
from decodiloco.training.corpus import is_held_out, read_corpus
from decodiloco.training.shards import Batches, shard_of
from streams.errors import AskedWrongly, Trouble

CONTEXT = 8


def texts(folder: Path, files: int, size: int = 400) -> None:
    (folder / "deep").mkdir(parents=True)
    for index in range(files):
        place = folder / "deep" if index % 2 else folder
        (place / f"{index:03}.txt").write_bytes(bytes([index]) * size)


def training(data: str, **settings: float) -> Training:
    return Training.model_validate({"data": data, "shards": 2, "batch_sequences": 2} | settings)


def test_the_standard_library_is_there_without_a_download():
    corpus = read_corpus(Training(), 128)

    together = len(corpus.training) + len(corpus.held_out)
    assert together > 4_000_000
    assert 0.02 < len(corpus.held_out) / together < 0.25
    assert b"def " in corpus.held_out.tobytes()


def test_a_glob_is_split_by_file_and_each_byte_is_on_one_side(tmp_path: Path):
    texts(tmp_path / "t", files=40)

    corpus = read_corpus(training(f"{tmp_path}/t/**/*.txt"), CONTEXT)

    names = {
        index: f"deep/{index:03}.txt" if index % 2 else f"{index:03}.txt" for index in range(40)
    }
    held = {index for index, name in names.items() if is_held_out(name, 0.1)}
    assert 0 < len(held) < 40
    assert set(corpus.held_out.tolist()) - {0} == held - {0}
    assert set(corpus.training.tolist()) - {0} == set(range(40)) - held - {0}


def test_the_split_does_not_depend_on_where_the_folder_lies(tmp_path: Path):
    texts(tmp_path / "one", files=40)
    texts(tmp_path / "another" / "place", files=40)

    first = read_corpus(training(f"{tmp_path}/one/**/*.txt"), CONTEXT)
    second = read_corpus(training(f"file://{tmp_path}/another/place/**/*.txt"), CONTEXT)

    assert first.digest == second.digest == blake3(first.held_out.tobytes()).digest()
    assert first.training.tobytes() == second.training.tobytes()


def test_one_file_alone_holds_out_its_end(tmp_path: Path):
    text = bytes(range(100)) * 10
    (tmp_path / "book.txt").write_bytes(text)

    corpus = read_corpus(training(f"{tmp_path}/book.txt"), CONTEXT)

    assert corpus.training.tobytes() == text[:900]
    assert corpus.held_out.tobytes() == text[900:]


@pytest.mark.parametrize("pattern", ["none/*.txt", "empty/*.txt", "empty"])
def test_a_glob_that_matches_no_file_is_asked_wrongly(tmp_path: Path, pattern: str):
    (tmp_path / "empty").mkdir()

    with pytest.raises(AskedWrongly, match="matches no file"):
        read_corpus(training(f"{tmp_path}/{pattern}"), CONTEXT)


def test_an_unknown_protocol_is_asked_wrongly():
    with pytest.raises(AskedWrongly, match="nowhere"):
        read_corpus(training("nowhere://texts/*.txt"), CONTEXT)


def test_a_place_that_does_not_answer_is_trouble():
    with pytest.raises(Trouble, match=r"training\.data"):
        read_corpus(training("http://127.0.0.1:9/*.txt"), CONTEXT)


def test_text_that_cannot_fill_a_batch_of_each_shard_is_refused_with_the_numbers(tmp_path: Path):
    (tmp_path / "book.txt").write_bytes(b"x" * 100)

    with pytest.raises(AskedWrongly, match=r"has 90 bytes .* takes 108"):
        read_corpus(training(f"{tmp_path}/book.txt", shards=6), CONTEXT)


def test_text_that_leaves_nothing_to_evaluate_on_is_refused(tmp_path: Path):
    (tmp_path / "book.txt").write_bytes(b"x" * 100)

    with pytest.raises(AskedWrongly, match="held_out_share"):
        read_corpus(training(f"{tmp_path}/book.txt", held_out_share=0.05), CONTEXT)


@pytest.mark.parametrize(
    "cursor",
    [None, 7, {}, {"pass": 0}, {"pass": 0, "batch": -1}, {"pass": 0, "batch": 10**6},
     {"pass": "0", "batch": 0}, {"pass": 0, "batch": 0, "more": 1}],
)  # fmt: skip
def test_a_cursor_of_another_trainer_or_text_is_refused(tmp_path: Path, cursor: object):
    texts(tmp_path / "t", files=4)
    corpus = read_corpus(training(f"{tmp_path}/t/**/*.txt"), CONTEXT)
    batches = Batches(shard_of(corpus.training, CONTEXT, 0, 2), 0, 2)

    with pytest.raises(AskedWrongly, match="cursor"):
        batches.resume(cursor)
