"""The live link to a NATS server: watched by pings, and opened anew whenever it dies.

Knows links and their deaths; nothing of tapes or inboxes.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Mapping
from typing import Any

from streams.door import Door
from streams.errors import PermissionDenied, ServerUnreachable, Trouble
from streams.link import Link
from streams.times import (
    API_SECONDS,
    FIRST_SECONDS,
    HEALTHY_SECONDS,
    PING_SECONDS,
    PONG_SECONDS_MAX,
    RECONNECT_PAUSE_SECONDS_MAX,
)


class Wire:
    """The live link to one server address, watched, and opened again when it dies.

    Belongs to one event loop.
    """

    def __init__(self, url: str, name: str) -> None:
        self.door = Door.at(url)
        self.address = self.door.address.shown
        self.name = name
        self._link: Link | None = None
        self._ready = asyncio.Event()
        self._answered_seconds = float("-inf")
        self._keeper: asyncio.Task[None] | None = None
        self._why = ""
        self._closed = False
        self._turn = random.randrange(len(self.door.address.servers))

    async def open(self) -> None:
        """Connects for the first time. Raises ServerUnreachable after a few seconds at most.

        Each server is the first once: of several, one may hang.
        """
        deadline = time.monotonic() + FIRST_SECONDS
        for tries in itertools.count(1):
            try:
                self._take_up(await self._open_link())
                break
            except ServerUnreachable:
                if tries >= len(self.door.address.servers) and time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.1)
        self._keeper = asyncio.create_task(self._keep(), name=f"nats link of {self.name}")
        self._keeper.add_done_callback(lambda _: self._ready.set())  # whoever waits must look

    async def close(self) -> None:
        """Ends the link; followers on it raise Trouble."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._link is not None:
            await self._link.close()
        self._ready.set()

    def healthy(self) -> bool:
        """Whether the server has answered a ping just now."""
        return (
            self.link_now() is not None
            and time.monotonic() - self._answered_seconds < HEALTHY_SECONDS
        )

    def link_now(self) -> Link | None:
        """The live link, if there is one at this moment."""
        link = self._link
        return None if self._closed or link is None or link.ended.is_set() else link

    async def link(self, seconds: float | None = API_SECONDS) -> Link:
        """The live link; waits for one, at most `seconds`, then raises ServerUnreachable.

        Raises Trouble once the wire is closed.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        except TimeoutError:
            raise ServerUnreachable(
                f"no NATS server answers at {self.address} ({self._why or 'no connection'}): "
                "is it running?"
            ) from None
        self._check_open()
        assert self._link is not None
        return self._link

    def _check_open(self) -> None:
        if not self._closed and self._keeper is not None and self._keeper.done():
            self._keeper.result()  # a bug of ours: raises what it raised
        if self._closed:
            raise Trouble(f"this connection to {self.address} was closed")

    async def api(
        self,
        call: str,
        body: Mapping[str, Any] | None = None,
        seconds: float = API_SECONDS,
        region: str = "",
    ) -> dict[str, Any]:
        """A JetStream API request and its answer. Raises Declined, Silent, PermissionDenied."""
        return await (await self.link(seconds)).api(call, body, seconds, region=region)

    async def ask(
        self, call: str, body: Mapping[str, Any] | None = None, region: str = ""
    ) -> dict[str, Any]:
        """A question to the JetStream API, asked again until it is answered. As `Link.ask`."""
        return await (await self.link()).ask(call, body, region)

    async def _open_link(self) -> Link:
        servers = self.door.address.servers
        turn = self._turn = (self._turn + 1) % len(servers)
        link = Link(self.name, self.door, self._ready.clear)
        await link.open([*servers[turn:], *servers[:turn]])
        return link

    def _take_up(self, link: Link) -> None:
        self._link = link
        self._answered_seconds = time.monotonic()
        if not link.ended.is_set():
            self._ready.set()

    async def _keep(self) -> None:
        while True:
            link = self._link
            assert link is not None
            self._why = await self._watch(link)
            link.end(self._why)
            await link.close()
            pause_seconds = 0.02
            while not self._closed:
                try:
                    self._take_up(await self._open_link())
                    break
                except Trouble as error:
                    self._why = str(error) if isinstance(error, PermissionDenied) else self._why
                await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.5))
                pause_seconds = min(2 * pause_seconds, RECONNECT_PAUSE_SECONDS_MAX)
            if self._closed:
                return

    async def _watch(self, link: Link) -> str:
        """Pings until the link is dead; why it is."""
        ended = asyncio.create_task(link.ended.wait())
        ping: asyncio.Task[float] | None = None
        try:
            while True:
                ping = asyncio.create_task(link.client.rtt(3600))
                for patience_seconds in (PONG_SECONDS_MAX, 0.2):  # again: we may have been paused
                    done, _ = await asyncio.wait(
                        {ping, ended},
                        timeout=patience_seconds,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if done:
                        break
                if ended.done():
                    return link.reason
                if not ping.done():
                    return f"no answer to a ping in {PONG_SECONDS_MAX:.0f} s"
                if ping.exception() is not None:
                    return f"a ping failed: {ping.exception()}"
                self._answered_seconds = time.monotonic()
                await asyncio.wait({ended}, timeout=PING_SECONDS)
        finally:
            ended.cancel()
            if ping is not None:
                ping.cancel()
