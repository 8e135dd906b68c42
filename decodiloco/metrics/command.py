"""The command that serves metrics: options in, one call, nothing loaded before."""

from __future__ import annotations

from typing import Annotated

import typer

from decodiloco.options import Endpoint, Run


def exporter(
    run: Run,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to serve /metrics on; port 0 chooses one.")
    ] = "127.0.0.1:9464",
    store_endpoint: Endpoint = None,
) -> None:
    """Serve a run's metrics to Prometheus, from its tape, until stopped."""
    from decodiloco.metrics.exporter import export
    from decodiloco.stopping import run_until_stopped
    from decodiloco.telemetry import configure
    from decodiloco.visit import address_of

    address = address_of(run, store_endpoint)
    configure(run=address.run, role="exporter")
    run_until_stopped(export(address, listen))
