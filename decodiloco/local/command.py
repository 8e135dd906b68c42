"""The commands `demo` and `up`: options in, one call, an exit code out.

Each imports what it needs, so that --help answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from decodiloco.options import AsJson, ConfigFile, Endpoint, Settings


def demo(
    learners: Annotated[int, typer.Option(help="How many learners train.")] = 3,
    kill: Annotated[
        list[str] | None,
        typer.Option(
            help="kill -9 at a syncer step: learner@40, syncer@60 or an id, b@40; `none` for "
            "no kill. Default: a learner at a quarter, the leading syncer at a half."
        ),
    ] = None,
    store: Annotated[str | None, typer.Option(help="Object store; default DIR/store.")] = None,
    store_endpoint: Endpoint = None,
    nats: Annotated[
        str | None, typer.Option(help="A NATS server that runs; default one of the demo's own.")
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The run folder.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=4, help="The run ends after so many merges.")] = 150,
    data: Annotated[
        str | None, typer.Option(help="Text to train on: a glob; default Python's own library.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a small model on this machine, kill parts of it, and sum up what happened.

    The same command again continues a run that was stopped, or tells a finished one's summary.
    """
    from decodiloco.local import demo as room

    asked = room.Asked(
        folder, learners, steps, tuple(kill or ()), data, store, store_endpoint, nats
    )
    raise typer.Exit(room.demo(asked, as_json))


def up(
    config: ConfigFile,
    learners: Annotated[int, typer.Option(help="How many learners train.")] = 3,
    syncers: Annotated[int, typer.Option(help="One leads, the others stand by.")] = 2,
    mergers: Annotated[
        int, typer.Option(help="How many carry out merges for the syncer; 0: it merges itself.")
    ] = 0,
    spot: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE", help="A file that says how many more learners there are, and when."
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="The run folder; default runs/NAME.")
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Run a whole cluster for your own config on this machine, to the end of its run.

    With --spot, learners spot-1, spot-2 ... come and go beside the others: SIGTERM when the trace
    says that their machine is gone. It begins anew with each start, and repeats.
    """
    from decodiloco.local import demo as room
    from decodiloco.local.cluster import Size
    from decodiloco.local.trace_file import read_trace

    size = Size(learners, syncers, mergers, read_trace(spot) if spot else None)
    raise typer.Exit(room.up(config, settings or (), folder, size, as_json))
