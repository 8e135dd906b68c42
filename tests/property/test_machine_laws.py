"""Laws of the two machines over random histories: snapshots, repeats, filters, limits, digests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from decodiloco.learner import machine as learner_machine
from decodiloco.syncer.in_flight import Offers
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import owed
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from decodiloco.syncer.state import State
from streams.errors import ChainBroken
from tests.builders import closed
from tests.desk import Desk
from tests.property.test_protocol_laws import wild
from tests.wild_run import WildRun

SEEDS = range(7)  # one of each kind of run
IN_THE_DIGEST = {
    "run", "position", "fence", "step", "fragments", "rounds", "offers", "learners", "inboxes",
}  # fmt: skip


@pytest.fixture(scope="module", params=SEEDS)
def run(request: pytest.FixtureRequest) -> WildRun:
    return wild(request.param, 1500)


def test_folding_from_any_snapshot_is_folding_from_the_start(run: WildRun) -> None:
    tape = run.syncer.tape
    state = begin(run.opening)
    for number, envelope in enumerate(tape):
        state = fold(state, envelope)
        if number % 40 == 17:
            again = decode_state(run.opening, encode_state(state))
            assert (again, owed(again)) == (state, owed(state))
            for later in tape[number + 1 :]:
                again = fold(again, later)
            assert again == run.syncer.state
    assert state == run.syncer.state


def test_a_record_that_comes_twice_is_no_successor_of_itself(run: WildRun) -> None:
    with pytest.raises(ChainBroken):
        fold(run.syncer.state, run.syncer.tape[-1])


def test_a_learner_folds_a_record_once_and_needs_no_other_learner_s(run: WildRun) -> None:
    for name in "abc":
        once = learner_machine.begin(run.opening, name)
        twice = once
        for envelope in run.syncer.tape:
            if getattr(envelope.event, "learner", name) == name:
                once = learner_machine.fold(once, envelope)
            twice = learner_machine.fold(learner_machine.fold(twice, envelope), envelope)
        theirs = {"position": twice.position, "checkpoints": twice.checkpoints}
        assert replace(once, **theirs) == twice


def test_what_is_kept_stays_small(run: WildRun) -> None:
    state, fragments = run.syncer.state, len(run.opening.fragments)
    assert len(state.rounds) <= fragments
    assert len(state.offers) <= 2 * fragments * len(state.learners), "one waits, one is merged"
    for fragment in range(fragments):
        waiting = [offer.learner for offer in state.waiting(fragment)]
        assert len(set(waiting)) == len(waiting)
    for learner in state.learners.values():
        for account in learner.accounts:
            assert len(account.spans) <= 20
    for life in run.lives:
        assert len(life.state.drafts) + len(life.state.making) <= 4 * fragments
        assert len(life.state.sent) <= 4 * fragments


def desk_state() -> State:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b")
    desk.open_round()
    desk.answer("a", 1)
    return desk.state


def _another(value: object) -> object:
    """A value of the same kind that a run could hold in the place of this one."""
    match value:
        case int():
            return value + 7
        case bytes():
            return b"another digest of thirty-two by."
        case str():
            return f"{value}x"
        case _:
            return value


@pytest.mark.parametrize("name", sorted({field.name for field in fields(State)} - {"opening"}))
def test_a_snapshot_holds_every_field_and_the_digest_those_of_the_design(name: str) -> None:
    state = desk_state()
    a = state.learners["a"]
    others: dict[str, object] = {
        "fragments": (replace(state.fragments[0], version=9), *state.fragments[1:]),
        "rounds": {},
        "offers": Offers(),
        "inboxes": {"home": ("life", 999)},
        "learners": {**state.learners, "a": replace(a, incarnation=99)},
        "superseded": ((1, 0),),
        "speakers": {"operator": (1, 1)},
        "timings": replace(state.timings, merge_seconds=9.0),
        "retention": replace(state.retention, asked=7),
        "closing": "asked",
        "closing_rounds": (1, 2, 3, 4),
        "closed": closed(),
    }
    changed = replace(state, **{name: others.get(name, _another(getattr(state, name)))})
    assert changed != state
    assert decode_state(state.opening, encode_state(changed)) == changed
    assert (state_digest(changed) != state_digest(state)) == (name in IN_THE_DIGEST)


PROGRAM = """
from tests.property.test_protocol_laws import wild
from decodiloco.syncer.in_flight import Offers
from decodiloco.syncer.snapshot import encode_state
from blake3 import blake3
for seed in (0, 4, 11):
    state = wild(seed, 1500).syncer.state
    print(state.position, state.digest.hex(), blake3(encode_state(state)).hexdigest())
"""


def test_the_order_of_hashes_decides_nothing() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] and len(told[0].splitlines()) == 3
