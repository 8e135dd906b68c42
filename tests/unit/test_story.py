"""The story of a demo: folded from facts and beats, then shown and summed up."""

from __future__ import annotations

import io
import os
from contextlib import suppress

from rich.console import Console

from decodiloco.local.story import Story
from decodiloco.local.summary import in_words, next_commands, summarized
from decodiloco.local.view import Display, progress_line, screen, versions_strip
from streams.events import Event
from streams.pulse import Beat
from tests import builders as told


def story_of(*events: Event) -> Story:
    story = Story()
    for envelope in told.tape_of(events):
        story.hear(envelope, envelope.time_seconds)
    return story


def beat(story: Story, learner: str, step: int, now_seconds: float) -> None:
    values = {"learner_step": step, "tokens_trained": 100 * step, "step_seconds": 0.5}
    story.feel(Beat("learner", learner, values), now_seconds)


def begun() -> tuple[Event, ...]:
    return (told.opened(), told.took_over("syncer-1", 1), told.joined("a"), told.joined("b"))


def test_a_round_is_shown_until_it_is_merged() -> None:
    story = story_of(*begun(), told.round_opened(round=1, fragment=1))
    assert versions_strip(story) == "0+"
    story = story_of(*begun(), told.round_opened(1, 1), told.merged(1, 1, 1, step=1))
    assert (versions_strip(story), story.rounds, story.step) == ("1", {}, 1)


def test_steps_during_an_outage_are_those_between_its_first_and_last_beat() -> None:
    facts = (*begun(), told.hardship("kill", "syncer-1", seed=45))
    story = story_of(*facts)
    beat(story, "a", 10, 4.0)
    story.strike("syncer-1", 5.0)
    beat(story, "a", 12, 5.5)
    beat(story, "b", 11, 5.5)
    beat(story, "a", 15, 7.0)
    beat(story, "b", 11, 7.0)
    assert "NOBODY LEADS" in progress_line(story, 90)
    taken = told.tape_of((*facts, told.took_over("syncer-2", 2)))[-1]
    line = story.hear(taken, 7.5)
    beat(story, "a", 99, 8.0)
    assert line == "syncer-2 leads (fence 2), 2.5 s after syncer-1 was killed"
    (outage,) = story.outages
    assert (outage.seconds, outage.stepped()) == (2.5, {"a": 3, "b": 0})
    assert "WAITED: b" in "\n".join(in_words(summarized(story, "runs/demo")))


def test_a_killed_learner_comes_back_with_a_new_life() -> None:
    story = story_of(*begun())
    story.strike("b", 5.0)
    assert story.living == ("a",)
    again = told.joined("b", nonce=b"1" * 16, learner_step=7, tokens_trained=700)
    story.hear(told.tape_of((*begun(), again))[-1], 9.0)
    assert (story.lanes["b"].lives, story.lanes["b"].learner_step) == (2, 7)
    assert story.living == ("a", "b")


def test_a_whole_stop_is_no_gap_between_merges() -> None:
    merge = told.merged(1, fragment=0, version=1, step=1)
    later = told.merged(2, fragment=1, version=1, step=2)
    busy = story_of(*begun(), merge, told.closing(), told.closing(), later)
    stopped = story_of(
        *begun(),
        merge,
        told.left("a", incarnation=3, reason="preempted"),
        told.left("b", incarnation=4, reason="preempted"),
        later,
    )
    assert (busy.merge_gap_seconds, stopped.merge_gap_seconds) == (3.0, 0.0)


def finished(*digests: bytes) -> Story:
    leavers = [
        told.left(
            learner,
            incarnation=3 + number,
            digest=digest,
            learner_step=180,
            tokens_trained=18_000,
        )
        for number, (learner, digest) in enumerate(zip("ab", digests, strict=True))
    ]
    return story_of(
        *begun(),
        told.evaluated(loss=5.0, step=0, said=1),
        told.hardship("kill", "b", seed=22),
        told.closed(step=4, tokens=36_000, digest=told.digest("model")),
        *leavers,
        told.evaluated(loss=3.0, step=4, versions=(1, 1, 1, 1), said=2),
    )


def test_a_run_is_finished_when_all_left_and_the_last_evaluation_is_there() -> None:
    story = finished(told.digest("model"), told.digest("model"))
    assert story.finished()


def test_a_run_is_not_finished_before_its_last_evaluation_and_the_last_farewell() -> None:
    end = told.closed(step=4, digest=told.digest("model"))
    gone = (told.left("a", incarnation=3), told.left("b", incarnation=4))
    last = told.evaluated(loss=3.0, step=4, versions=(1, 1, 1, 1))
    assert not story_of(*begun(), end, *gone).finished()
    assert not story_of(*begun(), end, gone[0], last).finished()
    assert not story_of(*begun(), *gone, last).finished()
    assert story_of(*begun(), end, *gone, last).finished()


def test_one_that_was_dead_when_the_run_closed_is_told_and_not_waited_for() -> None:
    end = told.closed(step=4, digest=told.digest("model"))
    last = told.evaluated(loss=3.0, step=4, versions=(1, 1, 1, 1))
    gone = (told.left("a", incarnation=3), told.lost("b", incarnation=4))
    story = story_of(*begun(), end, *gone, last)
    assert story.finished()
    assert "left before the end: b" in in_words(summarized(story, "runs/demo"))


def test_the_summary_has_the_fields_that_a_machine_reads() -> None:
    summary = summarized(finished(told.digest("model"), told.digest("model")), "runs/demo")
    expected = {
        "dir": "runs/demo",
        "tape": "runs/demo/run.tape",
        "run": "trial",
        "learners": 2,
        "tokens": 36_000,
        "steps": 360,
        "refused": 0,
        "kills": 1,
        "loss_first": 5.0,
        "loss_last": 3.0,
        "digests_equal": True,
    }
    assert {name: summary[name] for name in expected} == expected
    assert {"merges", "longest_merge_gap_seconds"} <= summary.keys()
    assert "5.000 -> 3.000 (40 % less)" in "\n".join(in_words(summary))
    assert [line.split()[:2] for line in next_commands(summary)] == [
        ["replay", "verify"],
        ["replay", "show"],
        ["replay", "state"],
    ]


def test_models_that_differ_at_the_end_are_an_alarm() -> None:
    summary = summarized(finished(told.digest("model"), told.digest("other")), "runs/demo")
    assert summary["digests_equal"] is False
    assert "ALARM" in "\n".join(in_words(summary))


def test_off_a_terminal_the_display_writes_plain_lines() -> None:
    out, now = io.StringIO(), [0.0]
    display = Display(out, lambda: now[0], 90)
    display.begin()
    story = story_of(*begun())
    display.note("learner a joins [sic]")
    display.tick(story)
    now[0] = 4.5
    display.tick(story)
    display.end()
    lines = out.getvalue().splitlines()
    assert lines[0] == "   0.0 s  learner a joins [sic]"
    assert lines[1].startswith("   4.5 s  step 0 of 90") and len(lines) == 2


def test_the_screen_fits_a_small_terminal() -> None:
    story = story_of(*begun(), told.round_opened(round=1, fragment=1))
    beat(story, "a", 123_456, 100.0)
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(screen(story, ["an event " * 20], 90_000, 100.5))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    first_words = [line.split()[0] for line in lines if line]
    assert first_words == [
        *("step", "loss", "syncer"),
        *("learner", "a", "b"),
        *("versions", "rounds", "an"),
    ]  # nothing is wrapped, and the long event is cut
    assert max(map(len, lines)) <= 80


def test_the_story_is_told_on_when_its_reader_has_gone() -> None:
    reading, writing = os.pipe()
    gone = os.fdopen(writing, "w")
    display = Display(gone, lambda: 0.0, 90)
    os.close(reading)
    display.note("nobody reads this")
    display.note("nor this")
    with suppress(BrokenPipeError):  # what was not written is written at closing
        gone.close()


def test_the_screen_tells_states_by_words() -> None:
    story = story_of(*begun(), told.round_opened(round=1, fragment=1))
    beat(story, "a", 10, 100.0)
    story.strike("b", 100.0)
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(screen(story, ["an event"], 90, 100.5))
    text = console.export_text()
    for word in ("training", "killed", "syncer-1 leads", "nobody yet", "an event"):
        assert word in text
