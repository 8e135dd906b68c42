"""The door of the comparison: finds two places, reads them, prints what differs.

Heavy imports stand inside the functions, so that `replay --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from replay.options import (
    PLACE_HELP,
    EndpointOption,
    JsonOption,
    note,
    print_json,
    until_the_reader_leaves,
)
from replay.progress import progress

if TYPE_CHECKING:
    from replay.diff.blobs import Compared
    from replay.diff.sides import Reading
    from replay.diff.walk import Comparison
    from replay.progress import Tell
    from replay.reach import Reach

STORE_HELP = "Where {}'s blobs are, when not where its tape says."


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=PLACE_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help=PLACE_HELP)],
    merges: Annotated[
        int, typer.Option(min=0, help="Merges told after the parting, one a fragment.")
    ] = 3,
    compare_bytes: Annotated[
        bool,
        typer.Option("--bytes", help="Also compare the blobs that both name, in both stores."),
    ] = False,
    store_a: Annotated[
        str | None, typer.Option("--store-a", metavar="URL", help=STORE_HELP.format("A"))
    ] = None,
    store_b: Annotated[
        str | None, typer.Option("--store-b", metavar="URL", help=STORE_HELP.format("B"))
    ] = None,
    store_endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where two tapes part, what each syncer knew there, and what follows from it.

    Exits 0 when both are of one run and agree as far as both go: a recording that is behind its
    live run agrees. Exits 1 when they part, are of two runs, or one of them is broken; with
    --bytes also when a blob differs.
    """
    from replay.diff.report import report_lines, told_as_json
    from replay.diff.sides import read_places
    from replay.diff.walk import compare
    from replay.place import find_place

    places = [
        find_place(place, store, store_endpoint) for place, store in ((a, store_a), (b, store_b))
    ]
    readings = read_places(places[0], places[1])
    try:
        with progress("comparing") as tell:
            found = compare(readings[0].side(tell), readings[1].side(tell))
            compared = _bytes(found, readings, merges, tell) if compare_bytes else None
    finally:
        for reading in readings:
            reading.close()
    notes = [place.note for place in places]
    for each in dict.fromkeys((*notes, *(one for reading in readings for one in reading.notes))):
        note(each)
    with until_the_reader_leaves():
        for line in report_lines(found, (places[0].told, places[1].told), merges):
            _print(line)
        for line in (*_broken_lines(readings), *_bytes_lines(compared)):
            print(line)
    agrees = found.agrees and not any(reading.broken for reading in readings)
    agrees = agrees and (compared is None or not compared.count)
    if as_json:
        told = {**told_as_json(found, merges), "agrees": agrees}
        told["broken"] = [reading.broken or None for reading in readings]
        if compared is not None:
            told["bytes"] = _bytes_as_json(compared)
        print_json(told)
    if not agrees:
        raise typer.Exit(1)


def _bytes(
    found: Comparison, readings: tuple[Reading, Reading], merges: int, tell: Tell
) -> Compared | None:
    """Both copies of each blob that both tapes name alike, and of the merges that are told."""
    from itertools import islice

    from decodiloco.store.keys import named_by
    from replay.diff.blobs import Compared, compare_copies, compare_merges
    from replay.diff.merges import first_differing
    from replay.diff.sides import records_of
    from streams.manifest import Manifest

    one, other = readings
    if one.store is None or other.store is None:
        note("no bytes are compared: a store is not found")
        return None
    compared = Compared()
    reaches = [each.reach() for each in readings]
    if any(reach.position for reach in reaches):
        note("bytes beyond a horizon are not compared: " + _horizons(reaches))
    if found.same_run and one.store.url == other.store.url:
        note(f"both tapes name one store, {one.store.url}; name a copy of it with --store-b")
    elif found.same_run:
        first = () if one.opening is None else one.opening.fragments

        def named() -> Iterator[tuple[str, Manifest]]:
            for envelope in islice(records_of(one.place, []), found.agreed.position):
                tell(envelope.position, found.agreed.position)
                if not all(reach.has(envelope.position) for reach in reaches):
                    continue
                yield from named_by(one.place.run, envelope.event, first)

        compare_copies(compared, named(), one.store, other.store)
    shown = [
        pair
        for pair in first_differing(found.pairs, merges)
        if all(
            made is None or reach.has(made.position)
            for made, reach in zip((pair.one, pair.other), reaches, strict=True)
        )
    ]
    runs = one.place.run, other.place.run
    compare_merges(compared, shown, runs, one.store, other.store)
    return compared


def _horizons(reaches: list[Reach]) -> str:
    told = (
        f"{name}'s is position {reach.position}" for name, reach in zip("AB", reaches, strict=True)
    )
    return ", ".join(told)


def _broken_lines(readings: tuple[Reading, Reading]) -> Iterator[str]:
    for name, reading in zip("AB", readings, strict=True):
        if reading.broken:
            yield f"BROKEN: {name} cannot be read further: {reading.broken}"


def _bytes_lines(compared: Compared | None) -> Iterator[str]:
    from replay.show_words import told_bytes

    if compared is None:
        return
    yield ""
    size = told_bytes(compared.bytes)
    yield f"{compared.blobs} blobs compared ({size}); {compared.count} differ"
    for each in compared.unlike:
        yield f"    {each.key}: {each.what}"


def _bytes_as_json(compared: Compared) -> dict[str, object]:
    return {
        "blobs": compared.blobs,
        "bytes": compared.bytes,
        "differ": compared.count,
        "unlike": [{"key": each.key, "what": each.what} for each in compared.unlike],
    }


def _print(line: str) -> None:
    """A line, in colour on a terminal: red for A's, green for B's."""
    colour = {"- ": typer.colors.RED, "+ ": typer.colors.GREEN}.get(line[:2])
    typer.secho(line, fg=colour)
