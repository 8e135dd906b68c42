"""`replay show`: one line a fact, one column a learner, and no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from replay.clocks import Clock, Clocks
from replay.show import Teller, Wanted, Widths, heading, is_alarming, plain, widths_within
from replay.show_words import cells_of, told_bytes, told_count
from replay.tape_file import Header
from replay.tape_writer import open_writer
from streams.events import Event
from tests.builders import (
    RUN,
    abandoned,
    joined,
    left_out,
    lost,
    merged,
    offered,
    one_of_each,
    opened,
    refused,
    round_opened,
    tape_of,
    took_over,
    window_closed,
)

EVENTS = (
    opened(),
    took_over(),
    joined("a"),
    joined("b"),
    round_opened(1, fragment=2),
    offered("a", round=1, fragment=2, tokens=6100),
    offered("b", round=1, fragment=2),
    window_closed(1, fragment=2, offers=(6, 7)),
    merged(1, fragment=2, contributions=(6,), left_out=(left_out(7, "not finite: w"),)),
    lost("b"),
)


def told(events: Iterable[Event], **wanted: object) -> list[str]:
    lines = Teller(Wanted(**wanted)).lines(tape_of(events))
    return [plain(line, ("a", "b"), Widths()) for line in lines]


def test_a_line_stands_for_each_fact_and_a_column_for_each_learner() -> None:
    lines = told(EVENTS)

    assert len(lines) == len(EVENTS)
    assert lines[0].split() == [
        *("1", "00:00:01", "0", "run", "trial", "opened,"),
        *("blobs", "in", "memory://trial"),
    ]
    at = heading(("a", "b"), clocks=False, widths=Widths()).index
    assert lines[5][at("a  ") :].startswith("r1 f2 on v0: 4 steps 6.1k tok loss 4.25")
    assert lines[6].index("r1 f2 on v0") > at("a  ") + 20


def test_a_merge_says_in_each_learners_column_what_became_of_its_offer() -> None:
    line = told(EVENTS)[8]

    assert "r1 f2 merged to v1" in line
    assert line.index("merged 4 steps 6.1k tok") < line.index("left out: not finite: w")
    assert line.split()[2] == "2", "the syncer step after this fact"


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        ({"learner": "a"}, [3, 6, 8, 9]),
        ({"learner": "b"}, [4, 7, 8, 9, 10]),
        ({"fragment": 2}, [5, 6, 7, 8, 9]),
        ({"fragment": 1}, []),
        ({"first": 4, "last": 6}, [4, 5, 6]),
        ({"learner": "a", "fragment": 2, "first": 7}, [8, 9]),
    ],
)
def test_filters_keep_what_concerns_them(wanted: dict[str, object], positions: list[int]) -> None:
    assert [int(line.split()[0]) for line in told(EVENTS, **wanted)] == positions


@pytest.mark.parametrize("columns", [80, 120, 240])
def test_on_a_terminal_every_column_is_seen_and_texts_are_cut(columns: int) -> None:
    names = ("a", "b", "c")
    widths = widths_within(columns, len(names))

    lines = [plain(line, names, widths) for line in Teller(Wanted()).lines(tape_of(EVENTS))]

    assert all(len(line) <= columns for line in lines)
    assert any("…" in line for line in lines) == (columns < 240)


def test_an_abandoned_merge_belongs_to_its_rounds_fragment() -> None:
    events = (*EVENTS[:7], abandoned(1, left_out=(left_out(6), left_out(7))))

    (line,) = told(events, fragment=2, first=8)

    assert "abandoned r1" in line
    assert line.count("left out: the blob is missing") == 2


def test_clocks_stand_at_the_end_of_each_line() -> None:
    lines = told(EVENTS, clocks=True)

    assert lines[5].endswith("@4 a:4 b:0")
    assert lines[8].endswith("@8 a:4 b:4")


def test_a_word_said_without_having_seen_another_is_concurrent_with_it() -> None:
    clocks = Clocks()
    tape = tape_of((opened(), joined("a"), joined("b"), offered("a", seen=3), offered("b", seen=3)))

    told = [clocks.tell(envelope) for envelope in tape]

    assert told[3] == Clock(3, {"a": 4, "b": 0})
    assert told[4] == Clock(3, {"a": 0, "b": 4})
    assert not told[3].before(told[4]) and not told[4].before(told[3])
    assert told[1].before(told[3]) and told[2].before(told[4])


def test_a_later_word_knows_all_that_its_speaker_knew_before() -> None:
    clocks = Clocks()
    tape = tape_of(
        (
            *(opened(), joined("a"), joined("b"), offered("a", seen=3)),
            offered("b", seen=4, learner_step=6),
            offered("b", seen=3, learner_step=8),
        )
    )

    told = [clocks.tell(envelope) for envelope in tape]

    assert told[4] == Clock(4, {"a": 4, "b": 6})
    assert told[4].before(Clock(told[5].seen + 1, told[5].steps))


def test_every_kind_of_fact_has_its_words() -> None:
    offers = {5: offered("a"), 6: offered("b")}

    for event in one_of_each():
        run, cells = cells_of(event, offers)
        assert run or cells, event.kind
        assert all(text and "\n" not in text for text in (*cells.values(), run or "-"))


def test_what_went_wrong_is_alarming_and_the_rest_is_not() -> None:
    lines = list(Teller(Wanted()).lines(tape_of((*EVENTS, refused("a")))))

    assert [line.position for line in lines if is_alarming(line)] == [2, 9, 10, 11]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (812, "812"), (6100, "6.1k"), (61_000, "61.0k"), (2.4e6, "2.4M")]
)
def test_counts_are_short(count: int, text: str) -> None:
    assert told_count(int(count)) == text


def test_sizes_are_short() -> None:
    assert [told_bytes(size) for size in (812, 6100, 2_400_000)] == ["812 B", "6.1 kB", "2.4 MB"]


def test_showing_a_tape_loads_neither_torch_nor_numpy_nor_nats(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "run.tape", Header(RUN, "memory://trial"))
    writer.append(tape_of(EVENTS))
    writer.seal()
    code = (
        "import sys\n"
        "from replay.cli import app\n"
        f"app(['show', {str(tmp_path / 'run.tape')!r}], standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'nats', 's3fs'} & set(sys.modules)))"
    )

    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()

    assert len(told) == len(EVENTS) + 2
    assert told[-1] == "[]"
