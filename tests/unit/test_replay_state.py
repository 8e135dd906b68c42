"""`replay state`: any state of a run, rebuilt to the bit from the tape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import replay
from decodiloco.config import Model
from decodiloco.fragments.of_model import trained
from decodiloco.store.keys import global_key, outer_key
from decodiloco.store.open_store import open_store
from decodiloco.store.tensors import read_tensors
from decodiloco.training import gpt
from replay.errors import NotReached
from replay.state import state_at
from streams.events import FragmentMerged, RunClosed
from tests.real_run import RealRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    folder = tmp_path_factory.mktemp("run")
    run = RealRun(open_store((folder / "store").as_uri()), steps=5).play()
    run.save_tape(folder / "run.tape")
    return run


def tape_of(run: RealRun) -> Path:
    return Path(run.store.url.removeprefix("file://")).parent / "run.tape"


def merges(run: RealRun) -> list[tuple[int, FragmentMerged]]:
    return [
        (each.position, each.event) for each in run.tape if isinstance(each.event, FragmentMerged)
    ]


def test_every_state_before_a_merge_has_the_digest_that_the_syncer_recorded(run: RealRun) -> None:
    for position, merge in merges(run):
        assert state_at(tape_of(run), position - 1).digest == merge.state_digest.hex()


def test_the_state_at_a_step_holds_the_bytes_of_that_merge(run: RealRun) -> None:
    for position, merge in merges(run):
        state = state_at(tape_of(run), step=merge.step)

        assert (state.position, state.step) == (position, merge.step)
        assert state.versions[merge.fragment] == merge.version
        parameters, momentum = state.parameters(), state.momentum()
        key = global_key(run.name, merge.fragment, merge.version, merge.parameters)
        for name, array in read_tensors(run.store, key, merge.parameters).items():
            assert np.array_equal(parameters[name], array)
        key = outer_key(run.name, merge.fragment, merge.version, merge.momentum)
        for name, array in read_tensors(run.store, key, merge.momentum).items():
            assert np.array_equal(momentum[name], array)


def test_the_last_state_is_the_model_that_the_run_closed_with(run: RealRun) -> None:
    (closed,) = [each.event for each in run.tape if isinstance(each.event, RunClosed)]
    state = replay.state_at(tape_of(run))

    assert state.position == len(run.tape)
    assert (state.step, state.tokens, state.versions) == (
        closed.step,
        closed.tokens,
        closed.versions,
    )
    assert state.model_digest() == closed.digest.hex()


def test_step_zero_is_the_opening_with_momentum_zero(run: RealRun) -> None:
    state = state_at(tape_of(run), step=0)

    assert (state.position, state.tokens, state.versions) == (1, 0, (0, 0, 0))
    assert list(state.momentum()) == [tensor.name for tensor in run.opening.layout.tensors]
    assert not any(array.any() for array in state.momentum().values())
    assert all(array.any() for array in state.parameters().values())


def test_a_fragments_version_is_the_state_right_after_its_merge(run: RealRun) -> None:
    position, merge = merges(run)[3]

    state = state_at(tape_of(run), fragment=merge.fragment, version=merge.version)

    assert state.position == position


def test_the_model_file_holds_every_tensor_under_its_name(run: RealRun, tmp_path: Path) -> None:
    state = state_at(tape_of(run), step=3)
    state.save(tmp_path / "model.safetensors")

    arrays = load_file(tmp_path / "model.safetensors")

    assert {name: array.shape for name, array in arrays.items()} == {
        tensor.name: tensor.shape for tensor in run.opening.layout.tensors
    }
    assert all(np.array_equal(arrays[name], array) for name, array in state.parameters().items())
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_iterating_a_tape_gives_its_envelopes(run: RealRun) -> None:
    assert list(replay.open_tape(tape_of(run))) == run.tape


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"position": 10_000}, "position 10000 is not on this tape"),
        ({"step": 99}, "step 99 is not on this tape"),
        ({"fragment": 7, "version": 1}, "version 1 of fragment 7"),
        ({"fragment": 1}, "both --fragment and --version"),
        ({"position": 3, "step": 1}, "one of them"),
    ],
)
def test_a_moment_that_the_tape_does_not_hold_is_told(
    run: RealRun, asked: dict[str, int], told: str
) -> None:
    with pytest.raises(NotReached, match=told):
        state_at(tape_of(run), **asked)


def test_the_names_of_a_layout_are_all_that_the_built_in_model_needs(tmp_path: Path) -> None:
    model = gpt.build(Model(layers=1, width=8, heads=1, context=8))
    path = tmp_path / "model.safetensors"
    arrays = {name: tensor.detach().numpy() for name, tensor in trained(model).tensors.items()}

    save_file({name: array + 1 for name, array in arrays.items()}, path)
    model.load_state_dict(
        {name: torch.from_numpy(array) for name, array in load_file(path).items()}
    )

    assert all(
        np.array_equal(tensor.detach().numpy(), load_file(path)[name])
        for name, tensor in trained(model).tensors.items()
    )
