"""`decodiloco exporter`: follows a run's tape and serves its metrics over HTTP. Thin shell.

The figures are made once a second beside the fold, so that a scrape never sees half a fact.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from importlib.metadata import version

from prometheus_client import start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from decodiloco.metrics.counted import Counted
from decodiloco.metrics.families import FAMILIES, PREFIX, Family
from decodiloco.metrics.measures import Outlook, values_of
from decodiloco.metrics.tally import Histogram, Values
from decodiloco.status import Heard
from decodiloco.telemetry import log
from decodiloco.times import METRICS_SECONDS, METRICS_SIZES_SECONDS
from decodiloco.visit import Address, Visit, visited
from streams.errors import AskedWrongly, ServerUnreachable, Trouble
from streams.link import Declined
from streams.sizes import StreamSize, sizes_of


class Page(Collector):
    """The figures of the last second, as Prometheus collects them. Knows the table of families."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._metrics: tuple[Metric, ...] = ()

    def collect(self) -> Iterator[Metric]:
        """What a scrape is given: whole figures of one moment."""
        yield from self._metrics

    def renew(self, values: Values, histograms: Mapping[str, Histogram]) -> None:
        """Puts new figures on the page. A name that the table lacks is a fault of ours."""
        unknown = {*values, *histograms} - {family.name for family in FAMILIES}
        assert not unknown, f"not in families.py: {sorted(unknown)}"
        self._metrics = tuple(
            self._histogram(family, histograms[family.name])
            if family.kind == "histogram"
            else self._values(family, values[family.name])
            for family in FAMILIES
            if family.name in (histograms if family.kind == "histogram" else values)
        )

    def _values(self, family: Family, values: dict[tuple[str, ...], float]) -> Metric:
        of_kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = of_kind(PREFIX + family.name, family.help, labels=("run", *family.labels))
        for labels, value in values.items():
            metric.add_metric((self._run, *labels), value)
        return metric

    def _histogram(self, family: Family, histogram: Histogram) -> Metric:
        metric = HistogramMetricFamily(PREFIX + family.name, family.help, labels=("run",))
        metric.add_metric((self._run,), list(histogram.cumulative()), histogram.sum)
        return metric


async def export(address: Address, listen: str) -> None:
    """Serves the metrics of a run on `listen`, HOST:PORT, until cancelled.

    Raises AskedWrongly where nothing can listen, and whatever ends the tape.
    """
    place = listening_place(listen)
    async with visited(address, "exporter") as visit:
        counted, heard = Counted(visit.opening), Heard(visit.opening.run.times)
        last = await visit.tape.last()
        async with aclosing(visit.tape.follow(0)) as records:
            while counted.state.position < last:
                counted.hear(await anext(records))
            page = Page(address.run)
            with _served(page, place) as shown:
                log("exporter").info("serves metrics", at=shown, position=last)
                async with asyncio.TaskGroup() as group:
                    group.create_task(heard.listen(visit), name="hear heartbeats")
                    group.create_task(_keep_page(visit, counted, heard, page), name="figures")
                    async for envelope in records:
                        counted.hear(envelope)


def listening_place(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT. Port 0 lets the system choose."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise AskedWrongly(f"--listen {text!r}: write it as HOST:PORT, such as 0.0.0.0:9464")
    return host.strip("[]"), int(port)


@contextmanager
def _served(page: Page, place: tuple[str, int]) -> Iterator[str]:
    host, port = place
    registry = CollectorRegistry(auto_describe=False)
    registry.register(page)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise AskedWrongly(
            f"--listen {host}:{port}: {error.strerror or error}; choose another address or port"
        ) from None
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _keep_page(visit: Visit, counted: Counted, heard: Heard, page: Page) -> None:
    sizes: tuple[StreamSize, ...] = ()
    measured_seconds = float("-inf")
    while True:
        if time.monotonic() - measured_seconds >= METRICS_SIZES_SECONDS:
            sizes = await _sizes(visit)
            measured_seconds = time.monotonic()
        outlook = Outlook(
            now_seconds=time.time(),
            connected=visit.connection.healthy(),
            beats=heard.newest(),
            streams=sizes,
            build=(version("decodiloco"), platform.python_version()),
        )
        page.renew(values_of(counted, outlook), counted.tally.histograms)
        await asyncio.sleep(METRICS_SECONDS)


async def _sizes(visit: Visit) -> tuple[StreamSize, ...]:
    """The sizes of the streams that answer; an old size of another would look like a new one."""
    wire, run = visit.connection.wire, visit.opening.run
    try:
        return await sizes_of(wire, run.name, run.regions, _untold)
    except (Declined, ServerUnreachable) as error:
        log("exporter").warning("the streams' sizes are not told", error=str(error))
        return ()


def _untold(stream: str, error: Trouble) -> None:
    log("exporter").warning("a stream's size is not told", stream=stream, error=str(error))
