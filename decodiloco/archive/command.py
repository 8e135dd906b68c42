"""The commands `archive` and `restore`: options in, one call, a few lines out.

Each imports what it needs, so that --help answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from decodiloco.options import ConfigFile, Endpoint, Run, Settings
from decodiloco.times import ARCHIVE_AGE_SECONDS


def archive(
    run: Run,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="How long a fact may wait to be archived.")
    ] = ARCHIVE_AGE_SECONDS,
    once: Annotated[
        bool, typer.Option("--once", help="Archive what the tape holds now, and end.")
    ] = False,
    store_endpoint: Endpoint = None,
) -> None:
    """Keep the tape a second time, in the object store, so that the run survives its servers."""
    import asyncio

    from decodiloco.archive.keeper import run_archive
    from decodiloco.telemetry import configure
    from decodiloco.visit import address_of

    address = address_of(run, store_endpoint)
    configure(run=address.run, role="archive")
    kept = asyncio.run(run_archive(address, seconds, once))
    typer.echo(
        f"run {address.run} is archived up to position {kept.position}: {kept.facts} facts in "
        f"{kept.segments} segments added"
    )


def restore(
    config: ConfigFile,
    keys: Annotated[
        Path | None, typer.Option(help="The folder of keys: its learners get their readers.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="In the run folder of a demo or up: its own server.")
    ] = False,
    settings: Settings = None,
) -> None:
    """Put a run's tape back onto NATS servers that have lost it, from its archive.

    The streams must be gone or empty. Stop the run's processes before, start them again after.
    """
    from decodiloco.config import load_config

    loaded = load_config(config, settings or ())
    from decodiloco.archive.restore import restore_run
    from decodiloco.local.folder import own_server

    with own_server(config.parent, loaded.here.nats, local):
        for line in restore_run(loaded, config.parent, keys):
            typer.echo(line)
