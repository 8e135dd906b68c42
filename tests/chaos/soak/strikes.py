"""How each kind of fault strikes an arena, and how it is taken back. One method a kind.

A strike returns when it is over: everything it did is undone by then, or undoes itself, as a
killed process does whose seat is taken again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from decodiloco.errors import ConfigInvalid
from tests.chaos.soak import lines
from tests.chaos.soak.arena import ENTER_SECONDS_MAX, PREFIX, Arena
from tests.chaos.soak.plan import BY_NAME, Strike
from tests.chaos.soak.settings import LEARNERS, ROGUE, SYNCERS
from tests.contract.proxy import Hardship, Refusal

REPEATED = 30
DELTAS_MAX = 3
DELAY_SECONDS = (0.05, 0.4)
POISONS = {
    "poison: not a number": "nan",
    "poison: a thousand times the norm": "huge",
    "poison: another shape": "shape",
}

Act = Callable[[Strike, Random], Awaitable[None]]


class Strikes:
    """Faults for one arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._processes = arena.processes
        self._acts = self._all_acts()
        assert sorted(self._acts) == sorted(BY_NAME), "every kind has its act"

    def why_not(self, kind: str) -> str:
        """Why this kind cannot strike here; empty when it can."""
        servers = self._arena.servers
        disks = {
            "nats-server's disk is full": servers.nats_disk,
            "the store's disk is full": servers.store_disk,
        }
        return disks[kind].why_not if kind in disks else ""

    async def carry_out(self, strike: Strike) -> None:
        """Strikes, lasts, and is taken back."""
        if strike.kind not in self._acts:
            raise ConfigInvalid(f"{strike.kind!r} is no kind of fault")
        await self._acts[strike.kind](strike, Random(strike.seed))

    def _all_acts(self) -> dict[str, Act]:
        arena, leader = self._arena, self._arena.leader
        return {
            "kill a learner": lambda strike, _: self._empty([strike.target], strike),
            "kill the leading syncer": lambda strike, _: self._empty([leader()], strike),
            "kill the standby": lambda strike, _: self._empty([arena.standby()], strike),
            "kill both syncers": lambda strike, _: self._empty(SYNCERS, strike),
            "kill all learners": lambda strike, _: self._empty(LEARNERS, strike),
            "kill half of the learners": lambda strike, chance: self._empty(
                chance.sample(LEARNERS, len(LEARNERS) // 2), strike
            ),
            "kill everything": self._kill_everything,
            "spot notice to a learner": self._notice,
            "stop the leading syncer": lambda strike, _: self._pause(leader(), strike),
            "stop a learner": lambda strike, _: self._pause(strike.target, strike),
            "slow a learner": self._slow,
            "clone a learner": self._clone,
            "a second syncer of one id": self._second_syncer,
            "restart nats-server": self._restart_nats,
            "kill nats-server": self._kill_nats,
            "no nats-server": self._kill_nats,
            "nats-server's disk is full": self._fill_nats,
            "the store's disk is full": self._fill_store,
            "kill the store": self._kill_store,
            "the store answers 500": lambda strike, _: self._store(
                strike, refusal=lines.refusing("500")
            ),
            "the store answers 503": lambda strike, _: self._store(
                strike, refusal=lines.refusing("503")
            ),
            "the store is slow": lambda strike, _: self._store(
                strike, lines.slow(arena.proxy.closed)
            ),
            "answers of the store are cut": lambda strike, _: self._store(strike, lines.cut()),
            "answers to puts are lost": lambda strike, _: self._store(strike, lines.lose_answers()),
            "deltas vanish": self._spoil_deltas,
            "deltas are altered": self._spoil_deltas,
            "words come twice": self._repeat,
            "old words come late": self._repeat,
            "a learner's line is slow": self._delay,
            "a learner's line is cut": lambda strike, _: self._cut(strike.target, strike),
            "a learner hears nothing": self._deafen,
            "the leading syncer's line is cut": lambda strike, _: self._cut(leader(), strike),
            **dict.fromkeys(POISONS, self._poison),
        }

    async def _empty(self, names: Sequence[str], strike: Strike) -> None:
        """Kills, and leaves the seats empty for so long."""
        for name in names:
            self._processes.hold(name)
            self._processes.kill(name)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            for name in names:
                self._processes.let(name)

    async def _kill_everything(self, strike: Strike, _: Random) -> None:
        servers = self._arena.servers
        servers.nats.kill()
        servers.kill_store()
        everyone = [name for name, seat in self._processes.seats.items() if seat.kept]
        await self._empty(everyone, strike)
        await asyncio.to_thread(servers.start_nats)
        await self._start_store()

    async def _notice(self, strike: Strike, _: Random) -> None:
        self._processes.hold(strike.target)
        self._processes.ask_to_leave(strike.target)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            self._processes.let(strike.target)

    async def _pause(self, name: str, strike: Strike) -> None:
        self._processes.pause(name)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            self._processes.resume(name)

    async def _slow(self, strike: Strike, chance: Random) -> None:
        await self._processes.slow(strike.target, chance.uniform(2.0, 10.0), strike.seconds)

    async def _clone(self, strike: Strike, _: Random) -> None:
        """Another process of the same id; the first ends, is started again and ends the clone."""
        seat = f"{strike.target}-clone"
        try:
            with self._arena.entering(f"steps/{seat}.jsonl") as entered:
                self._arena.start_learner(strike.target, seat)
                await entered()
            await asyncio.sleep(strike.seconds)
        finally:
            self._processes.kill(seat)

    async def _second_syncer(self, strike: Strike, _: Random) -> None:
        leader = self._arena.leader()
        seat = f"{leader}-second"
        try:
            with self._arena.entering(f"logs/{seat}.log") as entered:
                self._arena.start_syncer(leader, seat)
                await entered()
            await asyncio.sleep(strike.seconds)
        finally:
            self._processes.kill(seat)

    async def _restart_nats(self, strike: Strike, _: Random) -> None:
        await asyncio.to_thread(self._arena.servers.nats.stop)
        await asyncio.to_thread(self._arena.servers.start_nats)

    async def _kill_nats(self, strike: Strike, _: Random) -> None:
        self._arena.servers.nats.kill()
        await asyncio.sleep(strike.seconds)
        await asyncio.to_thread(self._arena.servers.start_nats)

    async def _fill_nats(self, strike: Strike, _: Random) -> None:
        """A server that could not write freezes what it could not write, until it is restarted."""
        servers = self._arena.servers
        await asyncio.to_thread(servers.nats_disk.fill)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            await asyncio.to_thread(servers.nats_disk.empty)
        await asyncio.to_thread(servers.nats.stop)
        await asyncio.to_thread(servers.start_nats)

    async def _fill_store(self, strike: Strike, _: Random) -> None:
        """A volume that found its disk full stays read-only; a new start looks again."""
        servers = self._arena.servers
        await asyncio.to_thread(servers.store_disk.fill)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            await asyncio.to_thread(servers.store_disk.empty)
        await self._start_store()

    async def _kill_store(self, strike: Strike, _: Random) -> None:
        self._arena.servers.kill_store()
        await asyncio.sleep(strike.seconds)
        await self._start_store()

    async def _start_store(self) -> None:
        await asyncio.to_thread(self._arena.servers.start_store)
        self._arena.proxy.turn_to(self._arena.servers.store.endpoint)

    async def _store(
        self, strike: Strike, hardship: Hardship | None = None, refusal: Refusal | None = None
    ) -> None:
        proxy = self._arena.proxy
        proxy.hardship = hardship or proxy.hardship
        proxy.refusal = refusal or proxy.refusal
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            self._arena.calm_store()

    async def _spoil_deltas(self, strike: Strike, chance: Random) -> None:
        """Spoils the next deltas, in the store itself; lasts until it has got some."""
        spoiled: list[str] = []
        store = self._arena.servers.store.store(PREFIX, limit_seconds=5.0)

        def spoil(path: str) -> None:
            key = path.removeprefix(f"/{store.bucket}/{PREFIX}/")
            held = bytearray(store.read(key, 0, store.size(key) or 0))
            store.delete(key)
            if strike.kind == "deltas are altered":
                held[-1 - chance.randrange(64)] ^= 1 << chance.randrange(8)
                store.put(key, [bytes(held)])
            spoiled.append(key)

        self._arena.proxy.hardship = lines.tampering(spoil, DELTAS_MAX)
        try:
            await asyncio.sleep(strike.seconds)
            await self._arena.watcher.until(lambda: bool(spoiled), ENTER_SECONDS_MAX)
        finally:
            self._arena.calm_store()
            await asyncio.to_thread(store.close)
        assert spoiled, f"{strike.kind}: no delta was stored in {ENTER_SECONDS_MAX:.0f} s"

    async def _repeat(self, strike: Strike, chance: Random) -> None:
        """Says words of others again, as letters of their own: new ones, or of long ago."""
        letters = list(self._arena.watcher.letters)
        if strike.kind == "words come twice":
            letters = letters[-REPEATED:]
        elif len(letters) > REPEATED:
            letters = chance.sample(letters, REPEATED)
        run = self._arena.config.run.name
        async with self._arena.raw_client() as client:
            for letter in letters:
                subject = f"in.{run}.{letter.source.inbox}.{letter.speaker}.{letter.kind}"
                await client.request(subject, letter.payload, timeout=5)

    async def _delay(self, strike: Strike, chance: Random) -> None:
        line = self._arena.lines[strike.target]
        line.delay_seconds = chance.uniform(*DELAY_SECONDS)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            line.delay_seconds = 0.0

    async def _cut(self, name: str, strike: Strike) -> None:
        line = self._arena.lines[name]
        line.down = True
        line.cut()
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            line.down = False

    async def _deafen(self, strike: Strike, _: Random) -> None:
        line = self._arena.lines[strike.target]
        line.deaf = True
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            line.deaf = False

    async def _poison(self, strike: Strike, _: Random) -> None:
        try:
            with self._arena.entering(f"steps/{ROGUE}.jsonl") as entered:
                self._arena.start_learner(ROGUE, poison=POISONS[strike.kind])
                await entered()
            await asyncio.sleep(strike.seconds)
        finally:
            self._processes.kill(ROGUE)
