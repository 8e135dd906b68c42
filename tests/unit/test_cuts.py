"""Which cut of a run an evaluator evaluates, and when."""

from __future__ import annotations

from decodiloco.training.cuts import Cut, Watch
from streams.events import Event
from tests.builders import closed, digest, evaluated, manifest, merged, round_opened, sealed

FIRST = (manifest("first of 0"), manifest("first of 1"))


def watch(*events: Event) -> Watch:
    """A run of two fragments, evaluated every two merges, after these facts."""
    opening = Cut(0, (0, 0), 0, FIRST)
    watching = Watch(2, digest("text"), opening=opening, newest=opening)
    for position, event in enumerate(events, start=2):
        watching.fold(sealed(event, position))
    return watching


def merges(count: int) -> list[Event]:
    """Merges of fragments 0 and 1 in turn."""
    return [merged(round, fragment=round % 2, version=1 + round // 2) for round in range(count)]


def parameters(fragment: int, version: int):
    return merged(0, fragment, version).parameters


def due_step(watching: Watch) -> int | None:
    cut = watching.due(caught_up=True)
    return None if cut is None else cut.step


def test_the_opening_is_evaluated_at_once():
    assert watch().due(caught_up=True) == Cut(0, (0, 0), 0, FIRST)


def test_the_newest_cut_is_evaluated_when_enough_merges_have_passed():
    watching = watch(evaluated(step=0), *merges(1), round_opened(round=3, tokens=700))
    assert due_step(watching) is None

    watching.fold(sealed(merges(2)[1]))

    assert watching.due(True) == Cut(2, (1, 1), 700, (parameters(0, 1), parameters(1, 1)))


def test_an_evaluator_that_fell_behind_skips_cuts():
    assert due_step(watch(evaluated(step=0), *merges(7))) == 7


def test_the_opening_is_evaluated_even_when_merges_have_passed():
    assert due_step(watch(*merges(7))) == 0


def test_old_facts_are_read_to_the_end_before_anything_is_evaluated():
    assert watch(*merges(2)).due(caught_up=False) is None


def test_what_stands_reported_is_not_evaluated_again_after_a_restart():
    assert due_step(watch(evaluated(step=0), *merges(2), evaluated(step=2))) is None


def test_a_report_on_other_text_does_not_count():
    assert due_step(watch(evaluated(step=0, dataset_digest=digest("other text")))) == 0


def test_the_last_cut_is_evaluated_however_few_merges_have_passed():
    watching = watch(evaluated(step=0), *merges(1), closed(step=1, tokens=900))

    assert watching.due(True) == Cut(1, (1, 0), 900, (parameters(0, 1), FIRST[1]))
    assert not watching.all_said and not watching.finished


def test_the_evaluator_ends_when_the_last_evaluation_stands_on_the_tape():
    watching = watch(evaluated(step=0), *merges(1), closed(step=1))
    watching.reported.add(1)
    assert watching.all_said and not watching.finished

    watching.fold(sealed(evaluated(step=1)))

    assert watching.finished
