"""A run that was opened before a setting was made is joined and verified like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from decodiloco.errors import ConfigDiffers
from decodiloco.learner.joining import read_opening
from decodiloco.store.open_store import open_store
from replay.place import find_place
from replay.verify import verify_place
from streams.events import RunOpened
from tests.hand_run import HandRun, plain_run, small_model, train


def test_a_run_from_before_carry_is_joined_and_verified(tmp_path: Path) -> None:
    model, store = small_model(), open_store((tmp_path / "store").as_uri())
    run = HandRun(plain_run(), model, store, unknown="adoption.carry")
    core = run.join("a", model)
    for step in range(6):
        run.open_round()
        train(model, core, seed=step)
        run.exchange()
        run.merge()
        core.work(run.store)
        core.adopt()
    (opened,) = run.facts(RunOpened)
    assert isinstance(opened, RunOpened) and opened.config_digest != run.opening.run.digest
    assert read_opening(store, plain_run(), opened) == run.opening
    with pytest.raises(ConfigDiffers, match=r"run\.adoption\.carry is True here and False in"):
        read_opening(store, plain_run(adoption={"carry": True}), opened)
    proof = verify_place(find_place(run.save_tape(tmp_path / "run.tape"), None), 1, lambda *_: None)
    assert proof.ok and proof.merges_checked == 6, proof.first_difference
