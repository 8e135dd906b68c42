"""Laws of every partition: disjoint, complete, no fragment empty, stable, balanced."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from decodiloco.config import Run
from decodiloco.errors import ConfigInvalid
from decodiloco.fragments.partition import Piece, partition

names = st.from_regex(r"[a-c](\.[0-9]{1,2})?\.[a-d]{1,3}", fullmatch=True)
shapes = st.lists(st.integers(1, 40), max_size=3).map(tuple)
models = st.dictionaries(names, shapes, min_size=1, max_size=30)
strategies = st.sampled_from(["balanced", "layer", "tensor"])


def run_of(fragments: int, strategy: str) -> Run:
    return Run.model_validate({"name": "t", "fragments": fragments, "partition": strategy})


@given(models, strategies, st.integers(1, 12))
def test_every_tensor_has_one_fragment_and_every_fragment_a_tensor(
    model: dict[str, tuple[int, ...]], strategy: str, fragments: int
) -> None:
    found = [Piece(name, shape, "float32") for name, shape in model.items()]
    try:
        layout = partition(found, run_of(fragments, strategy))
    except ConfigInvalid as error:
        most = int(str(error).rpartition("set run.fragments to ")[2].split()[0])
        assert 1 <= most < fragments
        layout = partition(found, run_of(most, strategy))
    assert sorted(tensor.name for tensor in layout.tensors) == sorted(model)
    assert {tensor.fragment for tensor in layout.tensors} == set(range(layout.fragments))


@given(models, strategies, st.randoms(use_true_random=False))
def test_the_order_in_which_tensors_are_named_changes_nothing(
    model: dict[str, tuple[int, ...]], strategy: str, chance: random.Random
) -> None:
    found = [Piece(name, shape, "float32") for name, shape in model.items()]
    shuffled = list(found)
    chance.shuffle(shuffled)
    run = run_of(1, strategy)
    assert partition(found, run).digest == partition(shuffled, run).digest


@given(models, st.integers(1, 8))
def test_balanced_fragments_differ_by_at_most_the_largest_tensor(
    model: dict[str, tuple[int, ...]], fragments: int
) -> None:
    found = [Piece(name, shape, "float32") for name, shape in model.items()]
    layout = partition(found, run_of(min(fragments, len(found)), "balanced"))
    held = [layout.elements(fragment) for fragment in range(layout.fragments)]
    assert max(held) - min(held) <= max(piece.elements for piece in found)
