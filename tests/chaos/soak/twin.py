"""The twin of a soak: the same run at the same pace beside it, which nobody hurts.

Its model is looked at as it stood when it had trained as many tokens as the soak in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from decodiloco.config import Config
from decodiloco.local.folder import write_config
from decodiloco.open_run import open_run
from decodiloco.training.corpus import read_corpus
from decodiloco.training.evaluation import held_out_loss, parameters_into
from decodiloco.training.gpt import build
from replay.place import find_place
from replay.record import Voice, record
from replay.state import StateAt, state_at
from streams.envelope import Envelope
from streams.errors import Trouble
from streams.events import RoundOpened
from streams.jetstream import connect
from streams.nats_server import NatsServer
from tests.chaos.soak.processes import Processes
from tests.chaos.soak.settings import LEARNERS, PACE_SECONDS, SYNCERS, tables
from tests.chaos.soak.watcher import Watcher

NAME = "twin"


@asynccontextmanager
async def twin(folder: Path) -> AsyncIterator[Watcher]:
    """Runs a twin in this folder while the body runs; then its tape is `run.tape` there."""
    server = await asyncio.to_thread(NatsServer.start, folder / "nats")
    processes = Processes(folder / "logs")
    try:
        here = {"nats": server.url, "store": f"file://{folder}/store"}
        config = write_config(folder, {"run": tables(NAME), "here": here})
        await asyncio.to_thread(open_run, config, build(config.run.model))
        words = ("--config", str(folder / "run.toml"))
        for name in SYNCERS[:1]:
            seat = ("-m", "tests.chaos.soak.scribe", *words, "--id", name, "--seat", name)
            processes.take(name, seat)
        for name in LEARNERS:
            seat = ("-m", "tests.chaos.soak.trainee", *words, "--id", name, "--seat", name)
            processes.take(name, (*seat, "--pace", str(PACE_SECONDS)))
        connection = await connect(server.url, "watcher")
        watcher = Watcher(connection, NAME)
        watching = asyncio.create_task(watcher.follow())
        try:
            yield watcher
            await processes.stop()
            await record(connection.tape(NAME), folder / "run.tape", Voice(lambda note: None))
        finally:
            watching.cancel()
            await connection.close()
    finally:
        await processes.stop()
        await asyncio.to_thread(server.stop)


def position_at(tokens: int, tape: Iterable[Envelope]) -> int:
    """Where a run had trained so many tokens, as its rounds tell; Trouble if it never had."""
    for envelope in tape:
        if isinstance(envelope.event, RoundOpened) and envelope.event.tokens >= tokens:
            return envelope.position
    raise Trouble(f"the twin never trained {tokens:,} tokens; see its logs")


def loss_of(config: Config, state: StateAt) -> float:
    """The held-out loss, in nats per token, of the merged model in a state."""
    run = config.run
    gpt = build(run.model)
    parameters_into(gpt, state.parameters())
    corpus = read_corpus(run.training, run.model.context)
    return held_out_loss(gpt, corpus, run.training.evaluate_tokens)


def loss_beside(config: Config, tokens: int, folder: Path) -> float:
    """The loss of the twin in this folder when it had trained so many tokens."""
    position = position_at(tokens, find_place(folder / "run.tape").envelopes())
    state = state_at(folder / "run.tape", position)
    try:
        return loss_of(config, state)
    finally:
        state.close()
