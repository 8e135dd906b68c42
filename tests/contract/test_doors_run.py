"""A whole run with every door shut: each process has its own key, and no secret shows anywhere."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from pathlib import Path

import pytest
import torch
from torch import nn

import decodiloco
from decodiloco.close import close_run
from decodiloco.keys import read_roster
from decodiloco.learner.network import NetworkThread
from decodiloco.learner.session import Session
from decodiloco.merger.service import run_merger
from decodiloco.status import status
from decodiloco.syncer.service import run_syncer
from decodiloco.telemetry import configure
from decodiloco.training.evaluator import _run as run_evaluator
from decodiloco.training.gpt import build
from decodiloco.visit import Address
from streams.chain import Chain
from streams.codec import encode_envelope
from streams.envelope import Envelope
from streams.events import (
    EvaluationReported,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    RunClosed,
    RunClosing,
)
from streams.permissions import rights_of
from tests.contract.doors import Doors, shut

LIMIT_SECONDS = 60.0


def tables(folder: Path) -> dict[str, object]:
    text = folder / "text"
    text.mkdir()
    for number in range(4):
        (text / f"{number}.txt").write_text(f"to be or not to be {number}\n" * 80)
    return {
        "name": "shut",
        "fragments": 2,
        "inner_steps": 2,
        "learners_min": 2,
        "quorum": 2,
        "times": {"takeover_seconds": 0.4, "heartbeat_seconds": 0.1, "lost_seconds": 20.0},
        "window": {"step_seconds": 0.02, "upload_seconds": 0.02},
        "model": {"layers": 1, "width": 8, "heads": 1, "context": 16},
        "training": {"data": f"{text}/*.txt", "shards": 1, "evaluate_tokens": 64},
    }


def joined(doors: Doors, learner: str) -> tuple[Session, nn.Module, torch.optim.Optimizer]:
    config = doors.config_of(f"learner-{learner}")
    model = build(config.run.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return decodiloco.join(config, learner, model, optimizer), model, optimizer


def step(session: Session, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    tokens = torch.randint(0, 256, (2, 16))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    session.step(tokens=tokens.numel(), loss=float(loss.detach()), cursor=None)


async def watched(doors: Doors) -> list[Envelope]:
    """The whole tape, as a viewer sees it grow until the run is over."""
    async with doors.enter("viewer") as (viewer,):
        chain, found = Chain(doors.run), []
        left = 0
        async with aclosing(viewer.tape(doors.run).follow(0)) as envelopes:
            async for envelope in envelopes:
                chain = chain.then(envelope)
                found.append(envelope)
                left += isinstance(envelope.event, LearnerLeft)
                closed = any(isinstance(each.event, RunClosed) for each in found)
                if closed and left == 2:
                    return found
        raise AssertionError("a followed tape has no end")


def test_a_whole_run_with_a_key_for_each_and_no_secret_in_sight(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configure()
    torch.manual_seed(0)
    trace = "debug: true\ntrace: true\n"
    with shut(tmp_path, tables(tmp_path), doors=trace, mergers=("m1",)) as doors:
        operator = doors.config_of("operator")
        decodiloco.open_run(operator, build(operator.run.model))
        asyncio.run(doors.open())
        names = ("m1", "s1", "evaluator", "viewer", "operator")
        threads = {name: NetworkThread(name) for name in names}
        try:
            merging = threads["m1"].start(run_merger(doors.config_of("merger-m1"), "m1"))
            syncing = threads["s1"].start(run_syncer(doors.config_of("syncer-s1"), "s1"))
            evaluating = threads["evaluator"].start(
                run_evaluator(doors.config_of("evaluator"), "evaluator")
            )
            watching = threads["viewer"].start(watched(doors))
            sessions = [joined(doors, "a"), joined(doors, "b")]
            address = Address(doors.url("operator"), doors.run, operator.here.store)
            closing = None
            while not all(session.finished for session, _, _ in sessions):
                for session, model, optimizer in sessions:
                    if not session.finished:
                        step(session, model, optimizer)
                        if session.clock.step >= 6 and closing is None:
                            closing = threads["operator"].start(close_run(address))
                    for task in (syncing, merging, watching, evaluating):
                        if task.done():
                            task.result()
            for session, _, _ in sessions:
                session.close()
            assert closing is not None and "closing (asked)" in closing.result(LIMIT_SECONDS)
            tape = watching.result(LIMIT_SECONDS)
            evaluating.result(LIMIT_SECONDS)
            merging.result(LIMIT_SECONDS)
            viewer = Address(doors.url("viewer"), doors.run, operator.here.store)
            report = asyncio.run(status(viewer))
        finally:
            for thread in threads.values():
                thread.stop()
        events = [envelope.event for envelope in tape]
        said = [event for event in events if isinstance(event, RunClosing)]
        assert {event.learner for event in events if isinstance(event, LearnerJoined)} == {"a", "b"}
        assert sum(isinstance(event, FragmentMerged) for event in events) >= 6
        assert [event.speaker for event in said] == ["operator"]
        assert any(isinstance(event, EvaluationReported) for event in events)
        assert not any(event.kind == "message_refused" for event in events)
        _assert_no_secret(doors, tape, json.dumps(report) + "".join(capfd.readouterr()))
        assert any(said.startswith("_INBOX_syncer_s1.") for said in _said(doors)["merger_m1"])
        assert _unused(doors) == {
            # Asked only where a word or a reader is not answered.
            *(
                f"learner_{id_}: {call}"
                for id_ in ("a", "b")
                for call in (
                    "api.shut.STREAM.INFO.IN_shut_home",
                    f"api.shut.CONSUMER.INFO.TAPE_shut.learner_{id_}",
                    f"api.shut.CONSUMER.INFO.TAPE_shut.learner_{id_}_reads",
                )
            ),
            "evaluator_evaluator: api.shut.STREAM.INFO.IN_shut_home",
            # Asked by an exporter only.
            "viewer_viewer: api.shut.STREAM.INFO.IN_shut_home",
            "viewer_viewer: api.shut.INFO",
        }


def _assert_no_secret(doors: Doors, tape: list[Envelope], told: str) -> None:
    """Neither what was printed, nor the tape, the server's log or its configuration."""
    seeds = [path.read_text().split()[-1] for path in doors.keys.glob("*.nk")]
    assert len(seeds) == 8
    assert "took over" in told
    folder = doors.server.folder
    places = [told.encode(), *(encode_envelope(each) for each in tape)]
    places += [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    places += [path.read_bytes() for path in doors.keys.iterdir() if path.suffix != ".nk"]
    places.append(repr(doors.config_of("operator")).encode())
    for seed in seeds:
        assert not any(seed.encode() in place for place in places)


def _said(doors: Doors) -> dict[str, set[str]]:
    """The subjects that each has published to, by the server's own log of all that was said."""
    roster = read_roster(doors.keys, doors.run)
    found: dict[str, set[str]] = {identity.name: set() for identity in roster.values()}
    for line in (doors.server.folder / "nats-server.log").read_text().splitlines():
        said = re.search(r"/nkey:(U\w+)\" - <<- \[H?PUB (\S+)", line)
        if said:
            found[roster[said[1]].name].add(said[2])
    return found


def _unused(doors: Doors) -> set[str]:
    """Rights to publish that nobody used."""
    used, unused = _said(doors), set()
    for identity in read_roster(doors.keys, doors.run).values():
        if identity.role == "operator" or identity.id == "s2":
            continue
        for right in rights_of(identity).publish:
            pattern = re.escape(right).replace(r"\*", "[^.]+").replace(">", ".+")
            if not any(re.fullmatch(pattern, subject) for subject in used[identity.name]):
                unused.add(f"{identity.name}: {right}")
    return unused
