"""A whole cluster on one machine: server, syncers, mergers, learners and the rest as processes.

Knows the order in which they start and stop, and follows the tape to tell what happens. What
a run is made of and when it is hurt is handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from decodiloco.config import Config
from decodiloco.local.availability import Availability
from decodiloco.local.folder import config_there, forget_config, wants_server, write_config
from decodiloco.local.kills import Injector
from decodiloco.local.plan import (
    Kill,
    Role,
    archive_role,
    evaluator_role,
    learner_roles,
    merger_roles,
    opener_role,
    recorder_role,
    spot_roles,
    still_to_come,
    syncer_ids,
    syncer_roles,
)
from decodiloco.local.settings import asked_settings
from decodiloco.local.spot import come_and_go
from decodiloco.local.story import Story
from decodiloco.local.supervisor import Supervisor, end_leftovers
from decodiloco.local.view import Display
from decodiloco.places import Places, open_places
from decodiloco.times import (
    FAREWELL_SECONDS_MAX,
    LEAVE_PROCESS_SECONDS_MAX,
    MEETING_SECONDS_MAX,
    STILL_SECONDS_MAX,
    TICK_SECONDS,
    faded_seconds,
)
from decodiloco.visit import records_to
from streams.envelope import Envelope
from streams.errors import StreamMissing, Trouble
from streams.events import RoundOpened, RunClosing
from streams.inbox import Inbox
from streams.nats_server import NatsServer


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each role a cluster has, and learners beyond these that come and go."""

    learners: int
    syncers: int
    mergers: int = 0
    spot: Availability | None = None


class Cluster:
    """The processes of one run in one folder, from the first to the last."""

    def __init__(self, folder: Path, config: Config, size: Size, display: Display) -> None:
        self.story = Story(faded_seconds=faded_seconds(config.run.times))
        self._folder = folder
        self._config = config
        self._size = size
        self._display = display
        self._supervisor = Supervisor(folder, display.note)
        self._heard_seconds = 0.0
        self._evaluator_heard = asyncio.Event()
        self._learners_there = asyncio.Event()
        self._round_opened = asyncio.Event()
        self._read: tuple[str, int] = "", 0  # of our inbox: its life, and how far syncers came
        self._is_new = config_there(folder) is None

    async def run(self, kills: Sequence[Kill]) -> Story:
        """Starts or continues the run and stays with it to its end.

        Stops everything in order on the way out, whatever happened.
        """
        for name in await asyncio.to_thread(end_leftovers, self._folder):
            self._display.note(f"{name} was left by an earlier start and is ended")
        try:
            async with self._server():
                try:
                    await self._live(kills)
                finally:
                    await asyncio.shield(self._stop())
        finally:
            self._supervisor.forget()
        return self.story

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[None]:
        """An embedded server while it is needed; run.toml then holds its address."""
        server = None
        nats = self._config.here.nats
        if wants_server(nats):
            server = await _started(self._folder / "nats", urlsplit(nats).port or None)
            here = self._config.here.model_copy(update={"nats": server.url})
            self._config = self._config.model_copy(update={"here": here})
            self._supervisor.note_foreign("nats-server", server.pid)
            self._display.note(f"nats-server answers at {server.url}")
        try:
            write_config(self._folder, asked_settings(self._config))
            yield
        finally:
            if server is not None:
                await asyncio.to_thread(server.stop)

    async def _live(self, kills: Sequence[Kill]) -> None:
        folder = str(self._folder)
        places = await open_places(self._config, "demo")
        try:
            await self._open(places)
            await self._catch_up(places)
            if not self.story.finished():
                await self._accompany(places, kills)
                await self._stop()
            # A recorder that follows may have found the tape quiet before its last fact.
            await self._supervisor.run_once(recorder_role(folder, follow=False))
            await self._supervisor.run_once(archive_role(folder, follow=False))
        finally:
            await places.close()

    async def _open(self, places: Places) -> None:
        """Opens the run, if that has not been done; a folder binds nobody to one that failed."""
        try:
            if not await _is_opened(places):
                await self._supervisor.run_once(opener_role(str(self._folder)))
        except Trouble:
            if self._is_new:
                forget_config(self._folder)
            raise

    async def _catch_up(self, places: Places) -> None:
        """Reads what an earlier start left on the tape, so that it is not done again."""
        last = await places.tape.last()
        now = asyncio.get_running_loop().time()
        async for envelope in records_to(places.tape, last, self.story.position):
            self.story.hear(envelope, now)
            self._look_for_rounds(envelope)
            source = envelope.source
            if source is not None and source.inbox == self._config.here.region:
                self._read = source.life, source.sequence
        if self.story.position > 1:
            self._display.note(
                f"continuing run {self.story.run} at step {self.story.step} "
                f"(position {self.story.position})"
            )
        self.story.leader = None

    async def _accompany(self, places: Places, kills: Sequence[Kill]) -> None:
        folder = str(self._folder)
        if self.story.closed is not None:
            kills = ()  # what follows is only a farewell
        coming = still_to_come(kills, self.story.struck, syncer_ids(self._size.syncers))
        roles = [
            *syncer_roles(folder, self._size.syncers),
            *(self._merger_roles() if self.story.closed is None else ()),
            *(role for role in learner_roles(folder, self._size.learners) if self._is_due(role.id)),
            evaluator_role(folder),
            recorder_role(folder),
            archive_role(folder),
        ]
        inbox = places.inboxes[self._config.here.region]
        injector = Injector(self.story, self._supervisor, inbox, self._display.note)
        self._display.begin()
        try:
            async with asyncio.TaskGroup() as group:
                keepers = [group.create_task(self._keep(role)) for role in roles]
                others = [
                    group.create_task(self._follow(places)),
                    group.create_task(self._listen(places)),
                    group.create_task(self._meet(inbox)),
                    group.create_task(injector.run(coming)),
                    group.create_task(self._scavenge()),
                ]
                await self._until_finished()
                for task in (*others, *keepers):
                    task.cancel()
        finally:
            self._display.end()

    async def _keep(self, role: Role) -> None:
        """Keeps a process. A syncer ends with its run: one is needed again by a late evaluator."""
        if role.name in syncer_ids(self._size.syncers):
            await self._learners_there.wait()
        if self._may_come_later(role):
            await self._round_opened.wait()
        await self._supervisor.keep(role)
        while role.name in syncer_ids(self._size.syncers):
            await self._evaluator_heard.wait()
            self._evaluator_heard.clear()
            await self._supervisor.keep(role)

    def _may_come_later(self, role: Role) -> bool:
        """Whether the first round does without it: its start would slow that of the learners."""
        standbys = syncer_ids(self._size.syncers)[1:]
        mergers = (merger.name for merger in self._merger_roles())
        return role.name in (*standbys, *mergers, "archive")

    def _look_for_rounds(self, envelope: Envelope) -> None:
        if isinstance(envelope.event, RoundOpened | RunClosing):
            self._round_opened.set()

    async def _meet(self, inbox: Inbox) -> None:
        """Until syncers may start: in the middle of a closing, not before learners are back.

        A syncer alone would soon close the run without those who take longer to start.
        """
        if self.story.closing and self.story.closed is None:
            roles = learner_roles(str(self._folder), self._size.learners)
            missed = {role.id for role in roles if self._is_due(role.id)}
            with suppress(TimeoutError):
                async with asyncio.timeout(MEETING_SECONDS_MAX), aclosing(inbox.follow(0)) as said:
                    async for letter in said:
                        life, sequence = self._read
                        is_new = letter.source.life != life or letter.source.sequence > sequence
                        if is_new and letter.kind == "learner_joined":
                            missed.discard(letter.speaker)
                        if not missed:
                            break
        self._learners_there.set()

    async def _scavenge(self) -> None:
        """Spot learners, from now on as the trace says. Into a run that is closing none comes."""

        async def come(role: Role) -> None:
            if not self.story.closing:
                await self._supervisor.keep(role)

        async def go(role: Role) -> None:
            await self._supervisor.stop([role.name])

        if self._size.spot is not None:
            now = asyncio.get_running_loop().time()
            await come_and_go(self._size.spot, self._spot_roles(), come, go, now)

    def _spot_roles(self) -> tuple[Role, ...]:
        return spot_roles(str(self._folder), self._size.spot.most if self._size.spot else 0)

    def _merger_roles(self) -> tuple[Role, ...]:
        return merger_roles(str(self._folder), self._size.mergers)

    def _is_due(self, learner: str) -> bool:
        lane = self.story.lanes.get(learner)
        return lane is None or lane.state != "finished"

    async def _follow(self, places: Places) -> None:
        loop = asyncio.get_running_loop()
        async with aclosing(places.tape.follow(self.story.position)) as facts:
            async for envelope in facts:
                self._heard_seconds = loop.time()
                line = self.story.hear(envelope, loop.time())
                self._look_for_rounds(envelope)
                if line is not None:
                    self._display.note(line)

    async def _listen(self, places: Places) -> None:
        loop = asyncio.get_running_loop()
        async with aclosing(places.pulse.listen()) as beats:
            async for beat in beats:
                self.story.feel(beat, loop.time())
                if beat.role == "evaluator":
                    self._evaluator_heard.set()

    async def _until_finished(self) -> None:
        """Ticks the display until the run is over; Trouble when nothing happens for too long."""
        loop = asyncio.get_running_loop()
        self._heard_seconds = loop.time()
        while not self.story.finished():
            self._display.tick(self.story)
            patience = STILL_SECONDS_MAX if self.story.closed is None else FAREWELL_SECONDS_MAX
            if loop.time() - self._heard_seconds > patience:
                waits = f" ({self.story.waits})" if self.story.waits else ""
                raise Trouble(
                    f"nothing was written to the tape for {patience:.0f} s at position "
                    f"{self.story.position}{waits}; look into {self._folder}/logs"
                )
            await asyncio.sleep(TICK_SECONDS)
        self._display.tick(self.story)

    async def _stop(self) -> None:
        """Learners first, so that a syncer still hears them leave; the recorder last.

        In the middle of a closing the syncers go first: they would close the run without the
        learners. Of a closed run learners take leave by themselves, in a moment. Mergers go after
        the syncers: one that leads would wait for an answer.
        """
        folder = str(self._folder)
        roles = (*learner_roles(folder, self._size.learners), *self._spot_roles())
        learners = [role.name for role in roles]
        if self.story.closed is not None:
            await self._supervisor.ended(learners, LEAVE_PROCESS_SECONDS_MAX)
        elif self.story.closing:
            await self._supervisor.stop(syncer_ids(self._size.syncers))
        await self._supervisor.stop([*learners, "evaluator", "open"])
        await self._supervisor.stop(syncer_ids(self._size.syncers))
        await self._supervisor.stop([role.name for role in self._merger_roles()])
        await self._supervisor.stop(["recorder", "archive"])


async def _started(folder: Path, port: int | None) -> NatsServer:
    """An embedded server; one that a Ctrl-C overtakes while it starts is stopped again."""
    starting = asyncio.ensure_future(asyncio.to_thread(NatsServer.start, folder, port))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        server = await starting
        await asyncio.to_thread(server.stop)
        raise


async def _is_opened(places: Places) -> bool:
    try:
        return await places.tape.last() > 0
    except StreamMissing:
        return False
