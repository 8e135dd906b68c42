"""The door of `replay follow`: reads what is asked, connects, and prints what comes.

Heavy imports stand inside the functions, so that `replay --help` answers at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.options import (
    EndpointOption,
    JsonOption,
    StoreOption,
    note,
    print_json,
    until_the_reader_leaves,
)
from streams.errors import AskedWrongly

if TYPE_CHECKING:
    from replay.follow.told import Alarm, Watched
    from replay.follow.watch import Voice
    from replay.place import Place

RUN_HELP = "A live run: a run folder, its run.toml, or nats://host:port/run."


def follow(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)],
    verify: Annotated[
        bool, typer.Option("--verify", help="Make every merge again; alarm at a difference.")
    ] = False,
    first: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Begin there, or `now`; with --verify from the nearest snapshot before it.",
        ),
    ] = "1",
    threads: Annotated[
        int, typer.Option(min=1, max=256, help="Merges made at once; the result is the same.")
    ] = 1,
    alarm: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an alarm there, as one JSON object."),
    ] = None,
    store: StoreOption = None,
    store_endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a run while it lives: show its facts as they come, or prove each of them.

    Goes on over restarts of servers and syncers until the run is closed (exit 0), something
    differs (exit 1), or SIGTERM (exit 0). Reads only: a viewer's key is enough.
    """
    import asyncio

    from replay.place import find_live

    if not verify and (alarm or store or store_endpoint or threads != 1):
        raise AskedWrongly(
            "--alarm, --store, --store-endpoint and --threads are read with --verify only"
        )
    place = find_live(run, store, store_endpoint)
    if not verify:
        from replay.follow.showing import show_live

        with until_the_reader_leaves():
            told = asyncio.run(show_live(place, first))
        if as_json:
            print_json(told)
        return
    watched = asyncio.run(_watch(place, first, threads))
    if watched.alarm is not None:
        _tell_alarm(watched.alarm, alarm, as_json)
    if as_json:
        print_json(watched.as_json())
    else:
        print(watched.line())
    if watched.alarm is not None:
        raise typer.Exit(1)


async def _watch(place: Place, asked: str, threads: int) -> Watched:
    import asyncio

    from replay.follow.beginning import begin_shadow, first_of, open_blobs, whole_tape
    from replay.follow.stopping import CLIENT, stop_on_signal
    from replay.follow.watch import Watch
    from streams.jetstream import connect

    assert place.url is not None
    stop = asyncio.Event()
    stop_on_signal(stop)
    connection = await connect(place.url, CLIENT)
    try:
        tape = whole_tape(connection, place.run)
        blobs, opened = await open_blobs(tape, place)
        try:
            first = await first_of(tape, asked)
            with _voice() as voice:
                shadow = await begin_shadow(tape, blobs, opened, first, voice.note)
                watch = Watch(tape, shadow, threads, voice)
                watch.stop = stop
                return await watch.run()
        finally:
            await asyncio.to_thread(blobs.close)
    finally:
        await connection.close()


@contextmanager
def _voice() -> Iterator[Voice]:
    """Notes on stderr; on a terminal also one line that is written over and over."""
    from replay.follow.watch import Voice

    if not sys.stderr.isatty():
        yield Voice(note)
        return
    from rich.console import Console

    with Console(stderr=True).status("following") as status:
        yield Voice(note, lambda line: status.update(line))


def _tell_alarm(alarm: Alarm, path: Path | None, as_json: bool) -> None:
    """Says it on stderr, with --json on stdout too, and in a file, whole or not at all."""
    note(alarm.line())
    if as_json:
        print_json(alarm.as_json())
    if path is None:
        return
    aside = path.with_name(f".{path.name}.aside")
    try:
        aside.write_text(json.dumps(alarm.as_json()) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        note(f"alarm file {path}: {error.strerror or error}; it is said here only")
