"""The door of `replay retrain`: reads what was asked, trains again, prints what was found.

Heavy imports stand inside the functions, so that `replay --help` answers at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from replay.options import (
    EndpointOption,
    JsonOption,
    PlaceArgument,
    StoreOption,
    note,
    print_json,
)
from replay.progress import progress

if TYPE_CHECKING:
    from replay.place import Place
    from replay.progress import Tell
    from replay.retrain.outcome import Rerun
    from replay.retrain.rerun import Wanted


def retrain(
    place: PlaceArgument,
    data: Annotated[
        str | None,
        typer.Option(metavar="GLOB", help="The run's own text, when it lies elsewhere by now."),
    ] = None,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Train only this learner (may be given again); others' deltas are read.",
        ),
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=1, metavar="POSITION", help="Stop after this position.")
    ] = None,
    evaluate: Annotated[
        int | None,
        typer.Option(min=1, metavar="MERGES", help="Tell the held-out loss after so many merges."),
    ] = None,
    store: StoreOption = None,
    store_endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train the learners of a run again, and compare every delta with the tape.

    The learners read the same text from the same cursors, adopt the same versions at the same
    steps, end and come back as on the tape; each merge is made from what they made.

    What decides: on the machine that was recorded (the same fingerprint: processor, versions,
    threads) every delta must be identical, bit for bit, as must every merge and the last model;
    else exit 1, and the first difference is named. On another machine deltas are only measured:
    how far they lie from the stored ones. That is no proof, and exit 0. Whatever differs is
    replaced by the tape's stored bytes, so that the rest can still be compared; when these are
    missing: exit 1, or 3 where a horizon let go of them.
    On a synthetic tape nothing is compared: the losses of the merged model are what is told.
    """
    from replay.place import find_place
    from replay.retrain.report import report_lines, told_as_json
    from replay.retrain.rerun import Wanted

    begun_seconds = time.perf_counter()
    found = find_place(place, store, store_endpoint)
    note(found.note)
    wanted = Wanted(tuple(learner or ()), until, evaluate)
    with progress("training again") as tell:
        outcome = rerun_of(found, data, wanted, tell)
    for line in report_lines(outcome):
        print(line)
    if as_json:
        seconds = time.perf_counter() - begun_seconds
        print_json(told_as_json(outcome, seconds))
    if outcome.unread and outcome.reach.position and outcome.first_broken is None:
        raise outcome.reach.beyond(outcome.run, "what came out otherwise, to be taken as stored,")
    if not outcome.ok:
        raise typer.Exit(1)


def rerun_of(place: Place, data: str | None, wanted: Wanted, tell: Tell) -> Rerun:
    """Trains the tape of a place again, on its own text or on that at `data`."""
    from decodiloco.errors import BlobMissing, ConfigInvalid
    from decodiloco.training.corpus import read_corpus
    from replay.errors import NotReached
    from replay.reach import reach_of
    from replay.refold import refold
    from replay.retrain.rerun import rerun
    from replay.state import opened_by, read_opening
    from streams.events import LearnerJoined

    records = list(place.envelopes())
    opened = opened_by(records[0] if records else None, place)
    joins = (record.event for record in records)
    known = sorted({each.learner for each in joins if isinstance(each, LearnerJoined)})
    for name in wanted.learners:
        if name not in known:
            raise NotReached(
                f"run {place.run}: no learner {name} on this tape; there are {', '.join(known)}"
            )
    reach = reach_of(records)
    if wanted.learners and reach.position:
        raise reach.beyond(place.run, "what learners that are not trained again have offered")
    store = place.open_store(opened)
    try:
        opening = read_opening(store, opened)
        for _ in refold(records, opening):
            pass  # a tape that cannot be is no script
        run = opening.run
        training = run.training if data is None else run.training.model_copy(update={"data": data})
        try:
            corpus = read_corpus(training, run.model.context)
        except ConfigInvalid as error:
            hint = "" if data is not None else "; name the run's own text with --data"
            raise ConfigInvalid(f"{error}{hint}") from None
        return rerun(records, opening, store, corpus, wanted, tell)
    except BlobMissing as error:
        if not reach.position:
            raise
        raise reach.beyond(place.run, f"what is needed ({error})") from error
    finally:
        store.close()
